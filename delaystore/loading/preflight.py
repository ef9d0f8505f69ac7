"""What can be known of a load's files before Spark starts, in the words that Spark's reader would be answered with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.loading.conversion.columns import UNREADABLE
from delaystore.loading.conversion.planning import plan_conversion
from delaystore.loading.conversion.types import DataType, Field, texts
from delaystore.loading.reading.counts import count_rows
from delaystore.loading.reading.csv_files import can_be_checked, common_end
from delaystore.loading.reading.csv_rows import header
from delaystore.loading.reading.files import DataFiles, Kind
from delaystore.loading.reading.json_rows import json_names
from delaystore.loading.reading.mapping import renamed
from delaystore.loading.reading.parquet_rows import parquet_columns
from delaystore.loading.request import LoadRequest

FEW_ROWS: Final = 100_000
_SMALL: Final = 64 * 2**20
"""Bytes of a file whose rows are counted."""
_READ_THROUGH: Final = 16 * 2**20
"""Bytes of JSON lines that are read for their keys; of more, only Spark finds them all."""


def check_files(files: DataFiles) -> DataFiles:
    """The files, those of CSV read through. ConfigurationError as `common_end`; what is elsewhere is left to Spark."""
    if files.kind is not Kind.CSV or files.checked:
        return files
    end = common_end(path for path in files.local if can_be_checked(path))
    return replace(files, checked=True, line_end=end)


def check_columns(request: LoadRequest) -> None:
    """ConfigurationError for files whose columns cannot be messages, as far as that can be known here.

    Left to Spark: files elsewhere, those that only it can unpack, folders that are columns (day=1), long JSON lines,
    and Parquet files that differ.
    """
    files = request.files
    if files.elsewhere or not all(map(can_be_checked, files.local)) or any(map(_in_column, files.local)):
        return
    columns = _COLUMNS[files.kind](files)
    if columns is None:
        return
    kinds = {column.name: column.type for column in columns}
    read = renamed([name for name in kinds if name != UNREADABLE], request.mapping)
    left = [UNREADABLE] if UNREADABLE in kinds else []
    named = [*(Field(new, kinds[old]) for old, new in read), *texts(left)]
    if all(type(column.type) is not DataType for column in named):  # else Spark may know it
        plan_conversion(named, request.given, datetime.now(UTC))


def few_rows(files: DataFiles) -> int | None:
    """How many rows a file has that a process alone loads sooner than Spark starts. None: there are more, or files."""
    if files.elsewhere or len(files.local) != 1 or files.size > _SMALL or _in_column(files.local[0]):
        return None
    rows = count_rows(files)
    return None if rows is None or rows > FEW_ROWS else rows


def _in_column(path: Path) -> bool:
    return any("=" in folder for folder in path.parts[:-1])


def _csv(files: DataFiles) -> Sequence[Field]:
    known: list[str] = []
    for path in files.local:
        names = header(path)
        if known and names and [name.lower() for name in names] != [name.lower() for name in known]:
            raise ConfigurationError(f"the CSV files have different columns ({path}); load them apart")
        known = known or names
    return [*texts([*known, UNREADABLE])] if known else []


def _json(files: DataFiles) -> Sequence[Field] | None:
    if files.size > _READ_THROUGH or len(files.local) > 1:
        return None
    return [*texts([*json_names(files.local[0]), UNREADABLE])]


def _parquet(files: DataFiles) -> Sequence[Field] | None:
    first, *others = ([field for field, _ in parquet_columns(path)] for path in files.local)
    return first if all(columns == first for columns in others) else None


_COLUMNS: Final[Mapping[Kind, Callable[[DataFiles], Sequence[Field] | None]]] = {
    Kind.CSV: _csv,
    Kind.JSON: _json,
    Kind.PARQUET: _parquet,
}
