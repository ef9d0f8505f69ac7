"""The rows of a CSV file that was checked, as Spark reads them.

An empty field is null; in quotes it is an empty body, and null in every other column.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Final

from delaystore.loading.reading.csv_files import OTHER_COLUMNS, long_fields, open_file
from delaystore.loading.reading.text_rows import TextRow

_FIELD: Final = re.compile(r'(?:"(?:[^"]|"")*"|[^,]*)(?:,|\Z)')


def header(path: Path) -> list[str]:
    """The names of its columns: those without a name, and those of one name but for case, have their number in it."""
    row = next((fields for fields, _ in _records(path)), [])
    lower = [name.lower() for name in row]
    return [
        f"_c{index}" if not name else f"{name}{index}" if lower.count(name.lower()) > 1 else name
        for index, name in enumerate(row)
    ]


def csv_rows(path: Path, names: Sequence[str], body: int | None) -> Iterator[TextRow]:
    """The rows below the header, which has `names`. `body`: the index of the column that may be empty; None: none."""
    for fields, line in islice(_records(path), 1, None):
        values: list[str | None] = [field or None for field in fields]
        if body is not None and body < len(fields) and not fields[body] and _is_quoted(line, body):
            values[body] = ""
        if len(fields) == len(names):
            yield TextRow(values)
        else:
            filled = [*values, *(None for _ in names)][: len(names)]
            yield TextRow(filled, line.removesuffix("\n").removesuffix("\r"), OTHER_COLUMNS)


def _records(path: Path) -> Iterator[tuple[list[str], str]]:
    """Each row's fields, and its lines as they are. Rows without anything are left out."""
    with open_file(path) as binary, TextIOWrapper(binary, "utf-8-sig", newline="") as stream:
        lines: list[str] = []

        def read() -> Iterator[str]:
            for line in stream:
                lines.append(line)
                yield line

        rows = csv.reader(read(), strict=True)
        while True:
            with long_fields():
                fields = next(rows, None)
            if fields is None:
                return
            if fields:
                yield fields, "".join(lines)
            lines.clear()


def _is_quoted(line: str, index: int) -> bool:
    """Whether the field at `index`, which is empty, has quotes."""
    return next(islice(_FIELD.finditer(line), index, None))[0].startswith('"')
