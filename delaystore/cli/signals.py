"""Signals as flags: what is in flight is finished first."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether somebody has asked this process to stop."""

    def __init__(self) -> None:
        self.made = False
        self.exit_code = 0
        """What shells say of a program that the signal ended: 128 and its number."""


@contextmanager
def stop_requests(also: Callable[[], object] = lambda: None) -> Iterator[StopRequest]:
    """Within the block the first SIGINT or SIGTERM makes the request, and calls `also`.

    The second does what it does by default, for those who will not wait. Signals reach only the main thread; in
    another the request is never made.
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

    before = {number: signal.signal(number, ask) for number in STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
