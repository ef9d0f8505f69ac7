"""Signals and waiting: clean ends, servers that are not there yet, screens that refresh."""

import gc
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, NoReturn

from delaystore.cli._output import is_terminal, print_note, write
from delaystore.errors import ConfigurationError, StoreUnavailableError, TransportUnavailableError

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code of a program that SIGINT ended, as shells count: 128 and the signal's number."""
READER_GONE: Final = 141
"""The exit code of a program that SIGPIPE ended: the reader of its output has closed the pipe."""
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR: Final = b"\x1b[?25h"
"""For a terminal: a progress bar may have hidden the cursor."""


class StoppedError(Exception):
    """A signal has asked to stop: raised between two steps, by the listener that is called after each."""


class StoppedAtOnceError(KeyboardInterrupt):
    """A signal has asked to stop: raised in the middle of a step.

    psycopg ends a statement at a KeyboardInterrupt alone: it asks the server to, and waits for the answer. So the
    transaction is rolled back, or its commit is over, when a caller catches this.
    """


@dataclass(slots=True)
class StopRequest:
    """Whether a signal has asked this process to stop."""

    made: bool = False
    exit_code: int = 0
    """128 and the signal's number; 0 without a request."""
    _interrupts: bool = False

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within the block a request raises StoppedAtOnceError, wherever the main thread is; an earlier one, too."""
        self._interrupts = True
        try:
            self.interrupt()
            yield
        finally:
            self._interrupts = False

    def interrupt(self) -> None:
        """Raise StoppedAtOnceError, if a request was made and the process is in a block that it interrupts."""
        if self.made and self._interrupts:
            raise StoppedAtOnceError


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

    def request_stop(number: int, _frame: FrameType | None) -> None:
        request.exit_code = 128 + number
        request.made = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_by_default(signal.SIGTERM)
        also()
        request.interrupt()

    before = {number: signal.signal(number, request_stop) for number in _STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _StoppedEarlyError(BaseException):
    """Passes through any code that a signal has interrupted."""


@contextmanager
def saying_stopped() -> Iterator[None]:
    """Within the block SIGTERM and SIGINT end the process at once, and it says `stopped` first.

    For the time before a command runs, in which nothing is to be finished. A KeyboardInterrupt would be lost where
    Python ignores exceptions, such as in a callback of its import system. A SIGINT that is ignored stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        end_by_default(number)
        try:
            tell_at_once("stopped")
        finally:
            if number == signal.SIGINT:
                os._exit(128 + number)
            os.kill(os.getpid(), number)

    interrupts = signal.getsignal(signal.SIGINT)
    if interrupts is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupts)


@contextmanager
def stopped_by(on_stop: Callable[[], bool]) -> Iterator[None]:
    """End the block at the first SIGINT or SIGTERM, which calls `on_stop`; the second one ends the process.

    `on_stop` returns True: there is nothing to finish, and the block is interrupted at any place; False: it ends on
    its own.
    """

    def asked() -> None:
        if on_stop():
            raise _StoppedEarlyError

    with suppress(_StoppedEarlyError), stop_requests(also=asked):
        yield


def tell_at_once(text: str) -> None:
    """A line on standard error, past Python's own stream, which the signal may have interrupted."""
    line = f"{text}\n".encode()
    os.write(2, _SHOW_CURSOR + line if os.isatty(2) else line)


@contextmanager
def second_signal_ends() -> Iterator[None]:
    """Within the block the second SIGINT or SIGTERM ends the process at once, in any wait.

    Python's own handlers wait for the main thread, which may be inside a driver, or closing a connection that does not
    answer. So the operating system reports signals to a thread. Messages in flight are as after a kill. In another
    thread than the main one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, telling = os.pipe()
    os.set_blocking(telling, False)
    watch = threading.Thread(target=_end_at_second, args=(heard,), name="delaystore-signals", daemon=True)
    before = signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
    watch.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(telling)
        watch.join()
        os.close(heard)


def _end_at_second(heard: int) -> None:
    """Read the numbers of signals, a byte each, until the other end is closed."""
    count = 0
    while number := os.read(heard, 1):
        count += number[0] in _STOP_SIGNALS
        if count > 1:
            _end(number[0])


def _end(number: int) -> NoReturn:
    try:
        tell_at_once("ended at once; what was in flight is as after a kill")
    finally:
        os._exit(128 + number)


_ALLOCATIONS: Final = 20_000
"""Objects that are made, and not freed, between two looks. With Python's 700 a collection comes with every 35
messages, finds nothing, as messages are in no cycle, and takes a quarter of an ingress' time."""


def look_for_garbage_seldom() -> None:
    """Leave modules that are imported by now out of it, and collect the rest less often; for our own process."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])


_LONGEST_PAUSE: Final = 5
"""Seconds between two attempts, in the end."""
_OUTAGES: Final = (StoreUnavailableError, TransportUnavailableError)


def when_reached(server: str, step: Callable[[], object], *, fail_fast: bool) -> None:
    """Do `step` as soon as `server` can be reached; each reason why not is printed once.

    `fail_fast`: try once only. Raises the errors of `step`, but outages only if `fail_fast`.
    """
    from tenacity import (
        RetryCallState,
        Retrying,
        retry_if_exception_type,
        stop_after_attempt,
        stop_never,
        wait_exponential,
        wait_random,
    )

    printed: set[str] = set()

    def tell(state: RetryCallState) -> None:
        reason = str(state.outcome.exception() if state.outcome else "")
        if reason not in printed:
            print_note(f"waiting for {server}: {reason} (--fail-fast ends instead)")
        printed.add(reason)

    Retrying(
        retry=retry_if_exception_type(_OUTAGES),
        wait=wait_exponential(multiplier=0.5, max=_LONGEST_PAUSE) + wait_random(0, 0.5),
        stop=stop_after_attempt(1) if fail_fast else stop_never,
        before_sleep=tell,
        reraise=True,
    )(step)


_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""The terminal's other screen, without a cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


class _Stopped(BaseException):
    """A signal has asked to stop."""


def watch(lines: Callable[[], Sequence[str]], document: Callable[[], Any], seconds: float, *, as_json: bool) -> None:
    """Show `lines()` on the screen, or `as_json` `document()`, at an interval in seconds, until SIGINT or SIGTERM.

    ConfigurationError for lines where standard output is no terminal. Raises OutputError.
    """
    if as_json:
        _watch_documents(document, seconds)
    elif is_terminal():
        _watch_screen(lines, seconds)
    else:
        raise ConfigurationError("--watch redraws a terminal; for a file or a pipe add --json, which prints lines")


def _watch_screen(lines: Callable[[], Sequence[str]], seconds: float) -> None:
    """Show `lines()` at an interval in seconds, until SIGINT or SIGTERM; the last lines remain. Raises OutputError."""
    shown: Sequence[str] = ()
    dumb = os.environ.get("TERM") in (None, "", "dumb")
    with _until_stopped():
        try:
            write("" if dumb else _ENTER)
            while True:
                shown = lines()
                write("".join(f"{line}\n" for line in shown) if dumb else _screen(shown))
                threading.Event().wait(seconds)
        finally:
            write("" if dumb else _LEAVE + "".join(f"{line}\n" for line in shown))


def _watch_documents(document: Callable[[], Any], seconds: float) -> None:
    """Print `document()` at an interval in seconds, each on one line, until SIGINT or SIGTERM. Raises OutputError."""
    with _until_stopped():
        while True:
            write(json.dumps(document(), allow_nan=False) + "\n")
            threading.Event().wait(seconds)


def _screen(lines: Sequence[str]) -> str:
    """In one piece, over the lines before: nothing flickers. Lines beyond the terminal's height are left out."""
    height = shutil.get_terminal_size().lines
    fitting = lines if len(lines) <= height else [*lines[: height - 1], f"... {len(lines) - height + 1} more lines"]
    return _HOME + f"{_REST_OF_LINE}\r\n".join(fitting) + _REST_OF_LINE + _REST_OF_SCREEN


@contextmanager
def _until_stopped() -> Iterator[None]:
    def stop() -> None:
        raise _Stopped

    try:
        with stop_requests(also=stop):
            yield
    except _Stopped:
        return
