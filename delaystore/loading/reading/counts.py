"""How many rows files have, and how large they are, without Spark."""

import csv
import zlib
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from delaystore.loading.reading.csv_files import can_be_checked, count_csv, open_file
from delaystore.loading.reading.files import DataFiles, Kind

_SPACE: Final = " \t\r\n"


def count_rows(files: DataFiles) -> int | None:
    """Rows of all files; None: some cannot be counted here."""
    if files.elsewhere or not all(map(can_be_checked, files.local)):
        return None
    try:
        return sum(map(_COUNTERS[files.kind], files.local))
    except (OSError, EOFError, ValueError, zlib.error, csv.Error, pa.ArrowException):
        return None


def bytes_a_row(files: DataFiles) -> int | None:
    """The mean size of a row, uncompressed, in the row group where it is largest; None: it is not known."""
    if files.kind is not Kind.PARQUET or not files.local:
        return None
    try:
        metadata = [parquet.read_metadata(path) for path in files.local]
    except (OSError, pa.ArrowException):
        return None
    groups = [one.row_group(number) for one in metadata for number in range(one.num_row_groups)]
    return max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=None)


def _count_lines(path: Path) -> int:
    """Lines that are not blank."""
    with open_file(path) as binary, TextIOWrapper(binary, "latin-1") as stream:
        return sum(1 for line in stream if line.strip(_SPACE))


def _count_parquet(path: Path) -> int:
    return int(parquet.read_metadata(path).num_rows)


_COUNTERS: Final[Mapping[Kind, Callable[[Path], int]]] = {
    Kind.CSV: count_csv,
    Kind.JSON: _count_lines,
    Kind.PARQUET: _count_parquet,
}
