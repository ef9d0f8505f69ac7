"""One failure of a server, which each part notices, is critical once."""

import logging
import time
from collections.abc import Callable
from typing import Final

from typing_extensions import override

_QUIET: Final = 60.0
"""Seconds within which the same reason is not critical again."""


class CriticalOnce(logging.Filter):
    """Drops what is critical for the reason, the last argument, of another critical record shortly before.

    What each part cannot do is in the log already, as a warning.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._told: dict[str, float] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged."""
        if record.levelno < logging.CRITICAL or not isinstance(record.args, tuple) or not record.args:
            return True
        now, reason = self._monotonic(), str(record.args[-1])
        before = self._told.get(reason)
        self._told = {each: told for each, told in self._told.items() if now - told < _QUIET} | {reason: now}
        return before is None or now - before >= _QUIET
