"""How many rows files have, without Spark."""

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
