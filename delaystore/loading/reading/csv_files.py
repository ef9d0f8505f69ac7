"""Checks of CSV files before Spark reads them: it says nothing of an unclosed quote, or of bytes that are no UTF-8.

The dialect is that of RFC 4180: a quote in a quoted field is doubled, and a backslash is nothing but a letter.
"""

import bz2
import csv
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Final

from delaystore.errors import ConfigurationError
from delaystore.loading.reading.files import UNKNOWN_COMPRESSIONS

_OPENERS: Final[Mapping[str, Callable[[Path], Any]]] = {".gz": gzip.open, ".bz2": bz2.open}
_NAMES: Final = {"\r\n": "CR LF", "\n": "LF", "\r": "CR"}
OTHER_COLUMNS: Final = "the line is not readable, or has other columns"
"""Why a row of a CSV file is rejected that has more fields than the header, or fewer."""
_LONGEST: Final = 2**31 - 1
"""Of a field, in characters; more than Spark can hold."""


def can_be_checked(path: Path) -> bool:
    """Whether Python can open the file. False: it is compressed by something that Python does not know."""
    return path.suffix.lower() not in UNKNOWN_COMPRESSIONS


def check_csv(path: Path) -> str | None:
    """Read through the file: what its lines end with; None: it has one line at most, without an end.

    ConfigurationError, with the line, for what Spark would change or lose in silence: text that is no UTF-8, a quote
    that is not closed, text behind a closing quote, rows that end unlike the first.
    """
    try:
        return _check(path)
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{str(path)!r} is not UTF-8 (line {_first_not_utf8(path)}); convert it, as by iconv -t UTF-8"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"the file {str(path)!r} cannot be read: {error}") from None


def count_csv(path: Path) -> int:
    """How many rows a file that can be checked has, without its header. Raises OSError, ValueError and their kin."""
    with open_file(path) as binary, TextIOWrapper(binary, "utf-8-sig", newline="") as stream, long_fields():
        return max(0, sum(1 for row in csv.reader(stream) if row) - 1)


def _check(path: Path) -> str | None:
    with open_file(path) as binary, TextIOWrapper(binary, "utf-8-sig", newline="") as stream, long_fields():
        line = ""

        def lines() -> Iterator[str]:
            nonlocal line
            for read in stream:
                line = read
                yield line

        rows = csv.reader(lines(), strict=True)
        begin, end = 1, None
        try:
            for _ in rows:
                found = next((each for each in _NAMES if line.endswith(each)), None)  # None: the file ends there
                if end is None:
                    end = found
                elif found != end and found is not None:
                    raise ConfigurationError(
                        f"{str(path)!r} has line ends of two kinds (its first row: {_NAMES[end]}, line "
                        f"{rows.line_num}: {_NAMES[found]}); make them one"
                    )
                begin = rows.line_num + 1
        except csv.Error:
            raise ConfigurationError(
                f"{str(path)!r} is no CSV in the row that begins at line {begin}: a quote is not closed, or there is "
                f"text behind a closing quote (line {rows.line_num}); double the quotes inside of quoted fields"
            ) from None
    return end


def common_end(paths: Iterable[Path]) -> str | None:
    """Check all files: what their lines end with; None: they have no ends. ConfigurationError also if they differ."""
    known: dict[str, Path] = {}
    for path in paths:
        if (end := check_csv(path)) is not None:
            known.setdefault(end, path)
    if len(known) > 1:
        examples = ", ".join(f"{str(path)!r}: {_NAMES[end]}" for end, path in known.items())
        raise ConfigurationError(f"the files have different line ends ({examples}); load them apart, or make them one")
    return next(iter(known), None)


def open_file(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed."""
    opener = _OPENERS.get(path.suffix.lower())
    opened: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return opened


@contextmanager
def long_fields() -> Iterator[None]:
    """Lift the csv module's limit of a field's length, which is one for the whole process."""
    before = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _first_not_utf8(path: Path) -> int:
    with open_file(path) as binary:
        for number, line in enumerate(binary, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1
