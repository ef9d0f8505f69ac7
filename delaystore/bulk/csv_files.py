"""CSV files: their separator, encoding and line ends, and their rows, read strictly.

The dialect is RFC 4180: a quote in a quoted field is doubled, and a backslash is nothing but a letter.
"""

import csv
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Final, NamedTuple

from delaystore.errors import ConfigurationError
from delaystore.migrations.records.files import open_file

BATCH: Final = 10_000
"""Rows of a batch."""
_NAMES: Final = {"\r\n": "CR LF", "\n": "LF", "\r": "CR"}
_UTF_8: Final = "UTF-8"
_UTF_16_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")
_SEPARATOR_LINE: Final = re.compile(r'("?)sep=([^"\r\n\0])\1[\r\n]*', re.IGNORECASE)
"""A first line that names the separator, and is no row. Excel reads it, and programs write it for Excel."""
_LONGEST: Final = 2**31 - 1
"""Of a field, in characters; more than Spark can hold."""

# The form of a file, found before its rows are read.

COMMA: Final = ","
SEPARATORS: Final = {COMMA: "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
"""The separators that are looked for, and their names."""


def separator_of(given: str) -> str:
    """The separator that a character or a name (comma, semicolon, tab, pipe) means; ConfigurationError if none."""
    named = next((sign for sign, name in SEPARATORS.items() if given.lower() == name), given)
    if len(named) != 1 or named in '"\r\n\0':
        raise ConfigurationError(
            f"the option separator must be one character, or one of {', '.join(SEPARATORS.values())}, not {given!r}"
        )
    return named


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How a CSV file is written.

    `encoding`: UTF-8 or UTF-16, where each may begin with a byte order mark; `line_end`: of its rows, None: it has no
    line end. `header`: the fields of its first row; none: it has no rows. `names_separator`: there is a line such as
    sep=; before that.
    """

    separator: str = COMMA
    encoding: str = _UTF_8
    line_end: str | None = None
    header: tuple[str, ...] = ()
    names_separator: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns' names: columns without a name, and columns whose names differ only in case, have their number
        in it.
        """
        lower = [name.lower() for name in self.header]
        return [
            f"_c{index}" if not name else f"{name}{index}" if lower.count(name.lower()) > 1 else name
            for index, name in enumerate(self.header)
        ]

    @property
    def line_end_name(self) -> str | None:
        """The usual name of the line end; None: there is none."""
        return None if self.line_end is None else _NAMES[self.line_end]

    @property
    def is_usual(self) -> bool:
        """Whether it has commas, in UTF-8."""
        return (self.separator, self.encoding) == (COMMA, _UTF_8)

    def __str__(self) -> str:
        """The separator and the encoding, such as "separator ';' (semicolon), UTF-8"."""
        name = SEPARATORS.get(self.separator)
        named = ", named in the first line" if self.names_separator else ""
        return f"separator {self.separator!r}{f' ({name})' if name else ''}{named}, {self.encoding}"


def csv_form(path: Path, separator: str | None = None) -> CsvForm:
    """Find how a file is written, from its first bytes and its header line.

    `separator`: None: the one that the first line names, or else the one of SEPARATORS that makes the most columns and
    splits no quoted name; the first of these, if several do.
    ConfigurationError for a file that cannot be read.
    """
    with read_errors(path), open_file(path) as binary:
        encoding = "UTF-16" if binary.read(2) in _UTF_16_BOMS else _UTF_8
    with _opened(path, encoding) as stream:
        named = _SEPARATOR_LINE.fullmatch(stream.readline())
    if separator is None and named is not None:
        separator = named[2]
    found, refused = [], []
    for sign in SEPARATORS if separator is None else (separator,):
        try:
            first = next(_read(path, sign, encoding), None)
        except ConfigurationError as error:
            refused.append(error)
            continue
        if first is None:
            return CsvForm(separator or COMMA, encoding)
        if any("\0" in name for name in first.fields):
            raise ConfigurationError(
                f"{str(path)!r} has NUL characters in its header line: it is UTF-16 without a byte order mark, or no "
                "text; save it as UTF-8"
            )
        form = CsvForm(sign, encoding, _line_end(first.text), tuple(first.fields), named is not None)
        if separator is not None and any(other in form.header[0] for other in SEPARATORS):
            check_columns_of(path, form)
        found.append(form)
    if not found:
        raise refused[0]
    return max(found, key=lambda form: ('"' not in "".join(form.header), len(form.header)))


def check_columns_of(path: Path, form: CsvForm) -> None:
    """ConfigurationError for a file of one column, which can be no messages: it has another separator."""
    if len(form.header) == 1:
        raise ConfigurationError(
            f"{str(path)!r} cannot be loaded: its header line is one column, {form.header[0]!r}, with the {form}; name "
            "another separator with the option separator"
        )


def separator_line_error() -> ConfigurationError:
    """The refusal of files whose first line names the separator, where Spark reads them."""
    return ConfigurationError(
        "the files begin with a line that names the separator, which Spark reads as the header line; remove that line, "
        "or send each file with `delaystore send --file`"
    )


def count_csv(path: Path, form: CsvForm) -> int:
    """Read through the file: how many rows it has, without its header. ConfigurationError as `csv_rows`."""
    return sum(map(len, csv_rows(path, form)))


# Rows.


class CsvRow(NamedTuple):
    """A row: the number of its first line, its fields, and its lines as they are."""

    line: int
    fields: list[str]
    text: str


def csv_rows(path: Path, form: CsvForm) -> Iterator[list[CsvRow]]:
    """The rows below the header, BATCH at a time. Rows without anything are left out.

    ConfigurationError, with the line, for what Spark would change or lose in silence: text that is not in the file's
    encoding, a quote that is not closed, text behind a closing quote, rows that end unlike the first.
    """
    rows = _read(path, form.separator, form.encoding)
    with _long_fields():
        next(rows, None)
    while True:
        with _long_fields():
            chunk = list(islice(rows, BATCH))
        if not chunk:
            return
        yield chunk


@contextmanager
def _opened(path: Path, encoding: str) -> Iterator[TextIOWrapper]:
    codec = "utf-8-sig" if encoding == _UTF_8 else encoding
    with read_errors(path), open_file(path) as binary, TextIOWrapper(binary, codec, newline="") as stream:
        yield stream


def _read(path: Path, separator: str, encoding: str) -> Iterator[CsvRow]:
    """All rows, the header among them, but no line that names the separator."""
    with _opened(path, encoding) as stream:
        lines: list[str] = []
        first = stream.readline()
        above = 0 if _SEPARATOR_LINE.fullmatch(first) is None else 1

        def read() -> Iterator[str]:
            for line in chain([first] if first and not above else (), stream):
                lines.append(line)
                yield line

        rows = csv.reader(read(), strict=True, delimiter=separator)
        begin, end = above + 1, None
        try:
            for fields in rows:
                last = lines[-1]
                found = tail if (tail := last[-2:]) == "\r\n" else tail[-1:]
                if end is None:
                    end = _line_end(last)
                elif found != end and found in _NAMES:
                    line = above + rows.line_num
                    raise ConfigurationError(
                        f"{str(path)!r} has two kinds of line ends (its first row: {_NAMES[end]}, line {line}: "
                        f"{_NAMES[found]}); use one kind"
                    )
                if fields:
                    yield CsvRow(begin, fields, last if len(lines) == 1 else "".join(lines))
                begin = above + rows.line_num + 1
                lines.clear()
        except csv.Error:
            line = above + rows.line_num
            raise ConfigurationError(
                f"{str(path)!r} is no CSV in the row that begins at line {begin}: a quote is not closed, or there is "
                f"text behind a closing quote (line {line}); double the quotes inside of quoted fields, or "
                f"name another separator than {separator!r} with the option separator"
            ) from None


def _line_end(text: str) -> str | None:
    return next((each for each in _NAMES if text.endswith(each)), None)


@contextmanager
def _long_fields() -> Iterator[None]:
    """Lift the csv module's limit of a field's length, which is one for the whole process."""
    before = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Raise ConfigurationError where the block cannot read, decompress or decode the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        if error.encoding == "utf-8":
            raise ConfigurationError(
                f"{str(path)!r} is not UTF-8 (line {_first_not_utf8(path)}); convert it, as by iconv -t UTF-8, or save "
                "it as 'CSV UTF-8' in Excel"
            ) from None
        raise ConfigurationError(f"{str(path)!r} is not UTF-16, though it begins so; save it as UTF-8") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"the file {str(path)!r} cannot be read: {error}") from None


def _first_not_utf8(path: Path) -> int:
    with open_file(path) as binary:
        for number, line in enumerate(binary, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1
