"""Signals as requests to stop, so that what is in flight is finished; and their exit codes."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final, NoReturn

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code of a program that SIGINT ended, as shells count: 128 and the signal's number."""
READER_GONE: Final = 141
"""The exit code of a program that SIGPIPE ended: nobody reads its output any more."""
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR: Final = b"\x1b[?25h"
"""For a terminal: a progress bar may have hidden the cursor."""


class StoppedError(Exception):
    """Somebody has asked to stop: raised between two steps, by what is called after each."""


@dataclass(slots=True)
class StopRequest:
    """Whether somebody has asked this process to stop."""

    made: bool = False
    exit_code: int = 0
    """128 and the signal's number; 0 without a request."""


def end_by_default(number: int) -> None:
    """Have the signal end this process, as by default.

    The kernel ignores signals to PID 1 that have no handler, so PID 1, such as the only process of a container, gets
    one.
    """
    signal.signal(number, _end_first_process if os.getpid() == 1 else signal.SIG_DFL)


def _end_first_process(number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)


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
        end_by_default(signal.SIGTERM)
        also()

    before = {number: signal.signal(number, ask) for number in _STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _StoppedEarlyError(BaseException):
    """Passes through whatever a signal has interrupted."""


@contextmanager
def stop_told() -> Iterator[None]:
    """Within the block SIGTERM ends the process as by default, and it says `stopped` first.

    For the time before a command runs, in which nothing is to be finished.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        end_by_default(number)
        try:
            tell_at_once("stopped")
        finally:
            os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stopped_by(ask: Callable[[], bool]) -> Iterator[None]:
    """End the block at the first SIGINT or SIGTERM, which calls `ask`; the second one ends the process.

    `ask` returns True: there is nothing to finish, and the block is interrupted wherever it is; False: it ends by
    itself.
    """

    def asked() -> None:
        if ask():
            raise _StoppedEarlyError

    with suppress(_StoppedEarlyError), stop_requests(also=asked):
        yield


def tell_at_once(text: str) -> None:
    """A line on standard error, past Python's own stream, which the signal may have interrupted."""
    line = f"{text}\n".encode()
    os.write(2, _SHOW_CURSOR + line if os.isatty(2) else line)


@contextmanager
def second_signal_ends() -> Iterator[None]:
    """Within the block the second SIGINT or SIGTERM ends the process at once, whatever it waits for.

    Python's own handlers wait for the main thread, which may be inside a driver, or closing a connection that does not
    answer. So a thread is told of signals by the operating system. What is in flight is as after a kill. In another
    thread than the main one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told, telling = os.pipe()
    os.set_blocking(telling, False)
    watch = threading.Thread(target=_end_at_second, args=(told,), name="delaystore-signals", daemon=True)
    before = signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
    watch.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(telling)
        watch.join()
        os.close(told)


def _end_at_second(told: int) -> None:
    """Read the numbers of signals, a byte each, until the other end is closed."""
    count = 0
    while number := os.read(told, 1):
        count += number[0] in _STOP_SIGNALS
        if count > 1:
            _end(number[0])


def _end(number: int) -> NoReturn:
    try:
        tell_at_once("ended at once; what was in flight is as after a kill")
    finally:
        os._exit(128 + number)
