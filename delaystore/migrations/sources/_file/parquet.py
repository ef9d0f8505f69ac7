"""Parquet files, by pyarrow."""

from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.extras import needed_for
from delaystore.migrations.sources._file.json_lines import Record

_ROWS: Final = 256
"""Rows in memory at a time, besides what pyarrow itself buffers."""


def read_parquet(path: Path, wanted: Collection[str]) -> Iterator[tuple[int, Record]]:
    """The number of each row, from 1, and its columns that are `wanted` (names, or names joined by dots).

    Maps become dicts, and times of nanoseconds are cut to microseconds, also nested ones. Raises
    MissingDependencyError without pyarrow, ConfigurationError for what is no Parquet file, OSError where it cannot be
    read.
    """
    pyarrow, parquet = _libraries()
    number = 0
    try:
        with parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            instants = {column.path for column in map(file.schema.column, range(len(file.schema)))
                        if column.physical_type == "INT96"}  # fmt: skip
            for batch in file.iter_batches(batch_size=_ROWS, columns=_present(file, wanted)):
                for record in _records(_to_microseconds(pyarrow, batch, instants)):
                    number += 1
                    yield number, record
    except pyarrow.ArrowException as error:
        raise ConfigurationError(f"{path.name!r} is no Parquet file that can be read: {_line(error)}") from None


def _present(file: Any, wanted: Collection[str]) -> list[str] | None:
    """The file's columns that are wanted, or that a wanted one is nested in. None: there are none, so all are read."""
    names = [name for name in file.schema_arrow.names if any(f"{want}.".startswith(f"{name}.") for want in wanted)]
    return names or None


def _records(rows: Any) -> Sequence[Record]:
    """All rows. A row with a value that Python cannot represent, such as a year beyond 9999, becomes an error."""
    try:
        records: list[Record] = rows.to_pylist(maps_as_pydicts="strict")
    except (ValueError, OverflowError, KeyError, TypeError) as error:
        if len(rows) == 1:
            return [InvalidMessageError(f"it holds what cannot be read: {_line(error)}")]
        return [record for index in range(len(rows)) for record in _records(rows.slice(index, 1))]
    return records


def _libraries() -> tuple[Any, Any]:
    with needed_for("reading Parquet files"):
        return import_module("pyarrow"), import_module("pyarrow.parquet")


def _to_microseconds(pyarrow: Any, batch: Any, instants: Collection[str]) -> Any:
    """`instants`: columns whose times are in UTC, though they do not say so."""
    utc = pyarrow.timestamp("us", "UTC")
    fields = [
        field.with_type(utc if field.name in instants else _in_microseconds(pyarrow, field.type))
        for field in batch.schema
    ]
    return batch.cast(pyarrow.schema(fields), safe=False)


def _in_microseconds(pyarrow: Any, kind: Any) -> Any:
    """The type with microseconds for nanoseconds, which Python's types do not have."""
    types = pyarrow.types
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_in_microseconds(pyarrow, field.type)) for field in kind])
    if types.is_map(kind):
        return pyarrow.map_(_in_microseconds(pyarrow, kind.key_type), _in_microseconds(pyarrow, kind.item_type))
    if types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_in_microseconds(pyarrow, kind.value_type)))
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pyarrow.timestamp("us", kind.tz)
    if types.is_duration(kind) and kind.unit == "ns":
        return pyarrow.duration("us")
    return pyarrow.time64("us") if types.is_time64(kind) else kind


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
