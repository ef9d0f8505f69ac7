"""The rows of a file as Spark's reader gives them: of CSV and JSON lines texts alone, of Parquet its types."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from delaystore.bulk.columns import UNREADABLE, text_columns
from delaystore.bulk.files import OTHER_COLUMNS, Kind, long_fields
from delaystore.bulk.json_lines import RAW, WHY, JsonLine, names_of, read_line
from delaystore.errors import ConfigurationError
from delaystore.migrations.records.files import ParquetContents, numbered_lines, open_file, parquet_contents

# Which column of a file is which of a message's.


def renamed(columns: Sequence[str], mapping: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each column to be read, and its name from then on; letters' case does not matter.

    `mapping`: the file's column of a message's column. A column that is mapped to no field stays as it is, unless a
    mapped one takes its name. Raises ConfigurationError for no columns at all, and for a mapped one that is not there.
    """
    if not columns:
        raise ConfigurationError("the files have no rows")
    present = {column.lower(): column for column in columns}
    for field, column in mapping.items():
        if column.lower() not in present:
            raise ConfigurationError(
                f"{field} cannot be read: the files have no column {column!r}; they have {', '.join(columns)}"
            )
    chosen = [(present[column.lower()], field) for field, column in mapping.items()]
    used = {column for column, _ in chosen}
    return chosen + [(name, name) for name in columns if name not in used and name.lower() not in mapping]


# Rows of texts, of files that know no types. They are collected column by column: no row has an object of its own.

BATCH: Final = 10_000
"""Rows of a batch."""
BODY: Final = "body"


class _TextColumns:
    """The texts of a batch of rows, under the names that the columns have from then on."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._unreadable: dict[int, tuple[str | None, str]] = {}
        self.rows: list[Sequence[str | None]] = []
        """Append the values of a row that could be read."""

    def add_unreadable(self, values: Sequence[str | None], raw: str | None, why: str) -> None:
        """A row that could not be read. `raw`: its line, which becomes its body; `why`: the reason."""
        self._unreadable[len(self.rows)] = raw, why
        self.rows.append(values)

    def batch(self) -> pa.RecordBatch:
        """All rows so far, and why a row was not readable."""
        columns = [[row[index] for row in self.rows] for index in range(len(self._names))]
        reasons: list[str | None] = [None] * len(self.rows)
        body = next((column for column, name in zip(columns, self._names, strict=True) if name.lower() == BODY), None)
        for number, (raw, why) in self._unreadable.items():
            reasons[number] = why
            if body is not None and raw is not None:
                body[number] = raw
        arrays = [pa.array(column, pa.string()) for column in (*columns, reasons)]
        return pa.RecordBatch.from_arrays(arrays, names=[*self._names, UNREADABLE])


# The rows of a CSV file that was checked, as Spark reads them.
#
# An empty field is null; in quotes it is an empty body, and null in every other column.

_FIELD: Final = re.compile(r'(?:"(?:[^"]|"")*"|[^,]*)(?:,|\Z)')


def header(path: Path) -> list[str]:
    """The names of its columns: columns without a name, and columns whose names differ only in case, have their
    number in it.
    """
    row = next((fields for fields, _ in _records(path)), [])
    lower = [name.lower() for name in row]
    return [
        f"_c{index}" if not name else f"{name}{index}" if lower.count(name.lower()) > 1 else name
        for index, name in enumerate(row)
    ]


def csv_batches(path: Path, count: int, indices: Sequence[int], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows below the header, which has `count` columns: those at `indices`, under the names `names`."""
    body = next((index for index, name in zip(indices, names, strict=True) if name.lower() == BODY), None)
    records = islice(_records(path), 1, None)
    while chunk := list(islice(records, BATCH)):
        found = _TextColumns(names)
        for fields, line in chunk:
            if len(fields) == count:
                values = [fields[index] or None for index in indices]
                if body is not None and not fields[body] and _is_quoted(line, body):
                    values[indices.index(body)] = ""
                found.rows.append(values)
            else:
                filled = [fields[index] or None if index < len(fields) else None for index in indices]
                found.add_unreadable(filled, line.removesuffix("\n").removesuffix("\r"), OTHER_COLUMNS)
        yield found.batch()


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


# The rows of a file of JSON lines, as Spark reads them.


def json_names(path: Path) -> list[str]:
    """The keys of all lines, sorted. ConfigurationError where no line can be read, or two keys differ but in case."""
    keys: set[str] = set()
    reasons: set[str] = set()
    for line in _lines(path):
        if line.why is None:
            keys.update(line.fields)
        else:
            reasons.add(line.why)
    return [name for name in names_of(keys, reasons) if name.lower() not in (RAW, WHY)]


def json_batches(path: Path, keys: Sequence[str], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """A row of each line that is not blank: the values of `keys`, under the names `names`."""
    lines = _lines(path)
    while chunk := list(islice(lines, BATCH)):
        found = _TextColumns(names)
        for line in chunk:
            values = [line.fields.get(key) for key in keys]
            if line.why is None:
                found.rows.append(values)
            else:
                found.add_unreadable(values, line.raw, line.why)
        yield found.batch()


def _lines(path: Path) -> Iterator[JsonLine]:
    for _, text in numbered_lines(path):
        if isinstance(text, bytes) and (line := read_line(text)) is not None:
            yield line


# The rows of a Parquet file, in the types that Spark reads them in.

_INSTANT: Final = pa.timestamp("us", "UTC")
_LOCAL: Final = pa.timestamp("us")
_PER_UNIT: Final = {"s": 1_000_000, "ms": 1_000}
"""Microseconds in the units of times that may not fit into microseconds."""
_READ_AS: Final[Sequence[tuple[Callable[[pa.DataType], bool], pa.DataType]]] = (
    (types.is_large_string, pa.string()),
    (types.is_string_view, pa.string()),
    (types.is_large_binary, pa.binary()),
    (types.is_binary_view, pa.binary()),
    (types.is_fixed_size_binary, pa.binary()),
    (types.is_uint8, pa.int16()),
    (types.is_uint16, pa.int32()),
    (types.is_uint32, pa.int64()),
    (types.is_uint64, pa.decimal128(20, 0)),
    (types.is_float16, pa.float32()),
    (types.is_duration, pa.int64()),
    (types.is_date64, pa.date32()),
    (types.is_time, pa.time64("us")),
)


def parquet_columns(path: Path) -> pa.Schema:
    """Return its columns in the types in which they are read.

    Raises ConfigurationError for a file that is none, and for one with two columns of one name.
    """
    with _opened(path) as contents:
        schema, instants = contents.file.schema_arrow, contents.old_instants
        for name in schema.names:
            if schema.names.count(name) > 1:
                raise ConfigurationError(f"{str(path)!r} has two columns {name!r}; rename or drop one")
        return pa.schema(
            (field.name, _INSTANT if field.name in instants and types.is_timestamp(field.type) else read_as(field.type))
            for field in schema
        )


def parquet_batches(path: Path, names: Sequence[tuple[str, str]], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of the columns `names`, each with its new name, as `columns`."""
    with _opened(path) as contents:
        for batch in contents.file.iter_batches(BATCH):
            arrays = [_cast(batch.column(old), kind) for (old, _), kind in zip(names, columns.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=columns.names)


def read_as(kind: pa.DataType) -> pa.DataType:
    """The type in which Spark's conversion has values that are written in `kind`."""
    if types.is_dictionary(kind):
        return read_as(kind.value_type)
    if types.is_timestamp(kind):
        return _LOCAL if kind.tz is None else _INSTANT
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, read_as(field.type), field.nullable) for field in kind])
    if types.is_map(kind):
        return pa.map_(read_as(kind.key_type), read_as(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(read_as(kind.value_type))
    return next((other for is_kind, other in _READ_AS if is_kind(kind)), kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Nanoseconds are cut off: no due time has them. Times that microseconds cannot hold stay beyond all due times."""
    if array.type == kind:
        return array
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not types.is_timestamp(kind):
        return array.cast(kind)
    if types.is_timestamp(array.type) and (factor := _PER_UNIT.get(array.type.unit)) is not None:
        farthest = (2**63 - 1) // factor
        numbers = pc.min_element_wise(array.cast(pa.int64()), farthest, skip_nulls=False)
        array = pc.max_element_wise(numbers, -farthest, skip_nulls=False).cast(array.type)
    return array.cast(kind, safe=False)


@contextmanager
def _opened(path: Path) -> Iterator[ParquetContents]:
    try:
        with parquet_contents(path) as contents:
            yield contents
    except (pa.ArrowException, OSError) as error:
        why = "is not a Parquet file" if isinstance(error, pa.ArrowInvalid) else f"cannot be read: {error}"
        raise ConfigurationError(f"the file {str(path)!r} {' '.join(why.split())}") from None


# The rows of a file as Spark's reader gives them: of CSV and JSON lines texts alone, of Parquet its types.


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a file. `columns`: those of each batch; `batches` reads the file, whenever it is called."""

    columns: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]


def read_rows(path: Path, kind: Kind, mapping: Mapping[str, str]) -> FileRows:
    """The rows of a file, which was checked if it is CSV; `mapping`: its column of a message's column.

    A line that cannot be read is a row that the conversion rejects, with the line as its body if there is such a
    column. ConfigurationError for a file that cannot be read, or that lacks a column of the mapping.
    """
    return _READERS[kind](path, mapping)


def _csv(path: Path, mapping: Mapping[str, str]) -> FileRows:
    columns = header(path)
    read = renamed(columns, mapping)
    indices, names = [columns.index(old) for old, _ in read], [new for _, new in read]
    return FileRows(text_columns([*names, UNREADABLE]), lambda: csv_batches(path, len(columns), indices, names))


def _json(path: Path, mapping: Mapping[str, str]) -> FileRows:
    read = renamed(json_names(path), mapping)
    keys, names = [old for old, _ in read], [new for _, new in read]
    return FileRows(text_columns([*names, UNREADABLE]), lambda: json_batches(path, keys, names))


def _parquet(path: Path, mapping: Mapping[str, str]) -> FileRows:
    found = parquet_columns(path)
    read = renamed(found.names, mapping)
    columns = pa.schema([(new, found.field(old).type) for old, new in read])
    return FileRows(columns, lambda: parquet_batches(path, read, columns))


_READERS: Final[Mapping[Kind, Callable[[Path, Mapping[str, str]], FileRows]]] = {
    Kind.CSV: _csv,
    Kind.JSON: _json,
    Kind.PARQUET: _parquet,
}
