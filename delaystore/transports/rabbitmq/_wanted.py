"""Queues that a transport was made with: they are declared once there is a broker."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from delaystore.address import named_queue
from delaystore.errors import ConfigurationError, TransportSetupError

_AGAIN: Final = 30.0
"""Seconds until a queue that the broker refused is declared again."""

log = logging.getLogger(__name__)


class WantedQueues:
    """Has each of `names` declared once, by `declare`, which creates no queue that exists.

    Threads may share it. Raises ConfigurationError for names that cannot be.
    """

    def __init__(self, names: Iterable[str], declare: Callable[[str], None]) -> None:
        if isinstance(names, str):
            raise ConfigurationError(f"queues must be a list of names, as in queues=[{names!r}]")
        try:
            self._missing = dict.fromkeys((named_queue(name) for name in names), 0.0)
        except TransportSetupError as error:
            raise ConfigurationError(f"queues: {error}") from None
        self._declare = declare

    def ensure(self) -> None:
        """Declare what is not declared yet; a refusal of the broker's is logged. Raises TransportUnavailableError."""
        for name, not_before in tuple(self._missing.items()):
            if time.monotonic() < not_before:
                continue
            try:
                self._declare(name)
            except TransportSetupError as error:
                self._missing[name] = time.monotonic() + _AGAIN
                log.warning("%s; it is tried again in %.0f s", error, _AGAIN)
            else:
                self._missing.pop(name, None)
