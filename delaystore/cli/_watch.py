"""Showing something again and again: one screen that is redrawn, or a JSON document a line."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from delaystore.cli._output import write
from delaystore.cli._signals import stop_requests

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""The terminal's other screen, without a cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


class _Stopped(BaseException):
    """Somebody has asked to stop."""


def watch_screen(lines: Callable[[], Sequence[str]], seconds: float) -> None:
    """Show `lines()` every so many seconds, until SIGINT or SIGTERM; what was last remains. Raises OutputError."""
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


def watch_documents(document: Callable[[], Any], seconds: float) -> None:
    """Print `document()` every so many seconds, each on one line, until SIGINT or SIGTERM. Raises OutputError."""
    with _until_stopped():
        while True:
            write(json.dumps(document(), allow_nan=False) + "\n")
            threading.Event().wait(seconds)


def _screen(lines: Sequence[str]) -> str:
    """In one piece, over what was there: nothing flickers. What the terminal has no lines for is left out."""
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
