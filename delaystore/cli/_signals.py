"""Signals as requests to stop, so that what is in flight is finished; and their exit codes."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code of a program that SIGINT ended, as shells count: 128 and the signal's number."""
READER_GONE: Final = 141
"""The exit code of a program that SIGPIPE ended: nobody reads its output any more."""
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class StopRequest:
    """Whether somebody has asked this process to stop."""

    made: bool = False
    exit_code: int = 0
    """128 and the signal's number; 0 without a request."""


@contextmanager
def stop_requests(also: Callable[[], object] = lambda: None) -> Iterator[StopRequest]:
    """Take the first SIGINT or SIGTERM within the block as a request to stop, and call `also`.

    The second signal ends the process, as by default. Signals reach only the main thread: in another thread no request
    is ever made.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def ask(number: int, _frame: FrameType | None) -> None:
        request.exit_code = 128 + number
        request.made = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        also()

    before = {number: signal.signal(number, ask) for number in _STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
