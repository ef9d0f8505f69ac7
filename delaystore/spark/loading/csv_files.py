"""What CSV files must be before Spark reads them, which takes an open quote, or other bytes than UTF-8, in silence.

The dialect is that of RFC 4180: a quote in a quoted field is doubled, and a backslash is nothing but a letter.
"""

import bz2
import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Final

from delaystore.errors import ConfigurationError

_OPENERS: Final[Mapping[str, Callable[[Path], Any]]] = {".gz": gzip.open, ".bz2": bz2.open}
_OTHERS: Final = frozenset({".zst", ".lz4", ".snappy", ".deflate"})
_LONGEST: Final = 2**31 - 1
"""Of a field, in characters; more than Spark can hold."""


def can_be_checked(path: Path) -> bool:
    """Whether Python can open it; compressed otherwise, it cannot."""
    return path.suffix not in _OTHERS


def check_csv(path: Path) -> None:
    """Read through the file. ConfigurationError, with the line, for what Spark would change or lose in silence.

    That is text that is no UTF-8, a quote that is not closed, text behind a closing quote, and a carriage return that
    Spark would take for the last field's end.
    """
    try:
        _check(path)
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{str(path)!r} is not UTF-8 (line {_first_not_utf8(path)}); convert it, as by iconv -t UTF-8"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"the file {str(path)!r} cannot be read: {error}") from None


def _check(path: Path) -> None:
    with _open(path) as binary, TextIOWrapper(binary, "utf-8-sig", newline="") as stream, _long_fields():
        lines = _Lines(stream)
        rows = csv.reader(lines, strict=True)
        begin = 1
        try:
            for _ in rows:
                lines.check_end(path, rows.line_num)
                begin = rows.line_num + 1
        except csv.Error:
            raise ConfigurationError(
                f"{str(path)!r} is no CSV in the row that begins at line {begin}: a quote is not closed, or there is "
                f"text behind a closing quote (line {rows.line_num}); double the quotes inside of quoted fields"
            ) from None


class _Lines:
    """Lines, of which the last one's end is remembered."""

    def __init__(self, stream: Iterator[str]) -> None:
        self._stream = stream
        self._line = ""
        self._short: bool | None = None
        """Whether the first line ends with a line feed alone; Spark takes all lines to end like it."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self._line = next(self._stream)
        if self._short is None:
            self._short = self._line.endswith("\n") and not self._line.endswith("\r\n")
        return self._line

    def check_end(self, path: Path, number: int) -> None:
        """ConfigurationError where the row's end would be a letter to Spark."""
        if self._short and self._line.endswith("\r\n"):
            raise ConfigurationError(
                f"{str(path)!r} has line ends of two kinds (line 1: LF, line {number}: CR LF); make them one"
            )


def _open(path: Path) -> IO[bytes]:
    opener = _OPENERS.get(path.suffix)
    opened: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return opened


def _first_not_utf8(path: Path) -> int:
    with _open(path) as binary:
        for number, line in enumerate(binary, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


@contextmanager
def _long_fields() -> Iterator[None]:
    """The csv module's limit, which is one for all, out of the way."""
    before = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)
