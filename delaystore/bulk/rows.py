"""The rows of a file as Spark's reader gives them: of CSV and JSON lines texts alone, of Parquet its types."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from delaystore.bulk.columns import LINE, MESSAGE_COLUMNS, OF_REJECTS, REASON, UNREADABLE, text_columns
from delaystore.bulk.csv_files import BATCH, CsvForm, check_columns_of, csv_form, csv_rows, read_errors
from delaystore.bulk.files import DataFiles, Kind
from delaystore.bulk.json_lines import RAW, WHY, JsonLine, names_of, read_line
from delaystore.bulk.workbooks import sheet_rows
from delaystore.errors import ConfigurationError
from delaystore.migrations.records.files import ParquetContents, numbered_lines, parquet_contents

# Which column of a file is which of a message's.


def renamed(columns: Sequence[str], mapping: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each column to be read, and its name from then on; letters' case does not matter.

    `mapping`: the file's column of a message's column. A column that is mapped to no field stays as it is, unless a
    mapped one takes its name, or it is of rejected rows. Files of rejected rows may have the names of a message's
    columns already. Raises ConfigurationError for no columns at all, and for a mapped one that is not there.
    """
    if not columns:
        raise ConfigurationError("the files have no rows")
    present = {column.lower(): column for column in columns}
    if REASON in present:  # rejected rows, whose columns were renamed before
        mapping = {field: given for field, given in mapping.items() if given.lower() in present or field not in present}
    for field, column in mapping.items():
        if column.lower() not in present:
            raise ConfigurationError(
                f"{field} cannot be read: the files have no column {column!r}; they have {', '.join(columns)}"
            )
    chosen = [(present[column.lower()], field) for field, column in mapping.items()]
    used = {column for column, _ in chosen}
    taken = {*mapping, *OF_REJECTS}
    return chosen + [(name, name) for name in columns if name not in used and name.lower() not in taken]


# Rows of texts, of files that know no types. They are collected column by column: no row has an object of its own.

BODY: Final = "body"


class _TextColumns:
    """The texts of a batch of rows, under the names that the columns have from then on."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._unreadable: dict[int, tuple[str | None, str]] = {}
        self._rows: list[Sequence[str | None]] = []
        self._lines: list[int] = []

    def add(self, line: int, values: Sequence[str | None], raw: str | None = None, why: str | None = None) -> None:
        """A row, at that line of its file. `why`: why it could not be read; then `raw`, its text, becomes its body."""
        if why is not None:
            self._unreadable[len(self._rows)] = raw, why
        self._rows.append(values)
        self._lines.append(line)

    def batch(self) -> pa.RecordBatch:
        """All rows so far, in the columns of `_columns`."""
        columns = [[row[index] for row in self._rows] for index in range(len(self._names))]
        reasons: list[str | None] = [None] * len(self._rows)
        body = next((column for column, name in zip(columns, self._names, strict=True) if name.lower() == BODY), None)
        for number, (raw, why) in self._unreadable.items():
            reasons[number] = why
            if body is not None and raw is not None:
                body[number] = raw
        arrays = [pa.array(column, pa.string()) for column in (*columns, reasons)]
        return pa.RecordBatch.from_arrays([*arrays, pa.array(self._lines, pa.int64())], schema=_columns(self._names))


def _columns(names: Sequence[str]) -> pa.Schema:
    """Texts of these names, why a row was not readable, and its line."""
    return text_columns([*names, UNREADABLE]).append(pa.field(LINE, pa.int64()))


# The rows of a CSV file, as Spark reads them.
#
# An empty field is null; in quotes it is an empty body, and null in every other column.

OTHER_COLUMNS: Final = "the line is not readable, or has other columns"
"""Why a row of a CSV file is rejected that has more fields than the header, or fewer."""


def csv_batches(path: Path, form: CsvForm, indices: Sequence[int], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows below the header: the fields at `indices`, under the names `names`."""
    body = next((index for index, name in zip(indices, names, strict=True) if name.lower() == BODY), None)
    sign = re.escape(form.separator)
    field = re.compile(rf'(?:"(?:[^"]|"")*"|[^{sign}]*)(?:{sign}|\Z)')
    for chunk in csv_rows(path, form):
        found = _TextColumns(names)
        for line, fields, text in chunk:
            if len(fields) == len(form.header):
                values = [fields[index] or None for index in indices]
                if body is not None and not fields[body] and _is_quoted(field, text, body):
                    values[indices.index(body)] = ""
                found.add(line, values)
            else:
                filled = [fields[index] or None if index < len(fields) else None for index in indices]
                found.add(line, filled, text.removesuffix("\n").removesuffix("\r"), OTHER_COLUMNS)
        yield found.batch()


def _is_quoted(field: re.Pattern[str], line: str, index: int) -> bool:
    """Whether the field at `index`, which is empty, has quotes."""
    return next(islice(field.finditer(line), index, None))[0].startswith('"')


# The rows of a file of JSON lines, as Spark reads them.


def json_names(path: Path) -> list[str]:
    """The keys of all lines, sorted. ConfigurationError where no line can be read, or two keys differ but in case."""
    keys: set[str] = set()
    reasons: set[str] = set()
    for _, line in _lines(path):
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
        for number, line in chunk:
            found.add(number, [line.fields.get(key) for key in keys], line.raw, line.why)
        yield found.batch()


def _lines(path: Path) -> Iterator[tuple[int, JsonLine]]:
    with read_errors(path):
        for number, text in numbered_lines(path):
            if isinstance(text, bytes) and (line := read_line(text)) is not None:
                yield number, line


# The rows of a workbook's sheet.


def sheet_batches(
    path: Path, sheet: str | None, indices: Sequence[int], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows below the header: the cells at `indices`, under the names `names`."""
    rows = islice(sheet_rows(path, sheet), 1, None)
    while chunk := list(islice(rows, BATCH)):
        found = _TextColumns(names)
        for number, texts in chunk:
            found.add(number, [texts[index] for index in indices])
        yield found.batch()


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


def read_rows(path: Path, files: DataFiles, mapping: Mapping[str, str]) -> FileRows:
    """The rows of `path`, one of the files; `mapping`: its column of a message's column.

    A line that cannot be read is a row that the conversion rejects, with the line as its body if there is such a
    column. ConfigurationError for a file that cannot be read, or that lacks a column of the mapping.
    """
    return _READERS[files.kind](path, files, mapping)


def _csv(path: Path, files: DataFiles, mapping: Mapping[str, str]) -> FileRows:
    form = files.form or csv_form(path, files.separator)
    check_columns_of(path, form)
    indices, names = _fields(form, mapping)
    return FileRows(_columns(names), lambda: csv_batches(path, form, indices, names))


def _json(path: Path, _: DataFiles, mapping: Mapping[str, str]) -> FileRows:
    read = renamed(json_names(path), mapping)
    keys, names = [old for old, _ in read], [new for _, new in read]
    return FileRows(_columns(names), lambda: json_batches(path, keys, names))


def _xlsx(path: Path, files: DataFiles, mapping: Mapping[str, str]) -> FileRows:
    _, header = next(sheet_rows(path, files.sheet), (0, []))
    indices, names = _fields(CsvForm(header=tuple(name or "" for name in header)), mapping)
    return FileRows(_columns(names), lambda: sheet_batches(path, files.sheet, indices, names))


def _fields(form: CsvForm, mapping: Mapping[str, str]) -> tuple[Sequence[int], Sequence[str]]:
    """Which fields of a row are read, and their names from then on."""
    columns = form.columns
    for field in MESSAGE_COLUMNS:
        same = [name for name, given in zip(columns, form.header, strict=True) if given.lower() == field]
        if len(same) > 1 and field not in mapping:
            raise ConfigurationError(
                f"the header line has two columns {field}, which are read as {' and '.join(same)}; rename or drop one"
            )
    read = renamed(columns, mapping)
    return [columns.index(old) for old, _ in read], [new for _, new in read]


def _parquet(path: Path, _: DataFiles, mapping: Mapping[str, str]) -> FileRows:
    found = parquet_columns(path)
    read = renamed(found.names, mapping)
    columns = pa.schema([(new, found.field(old).type) for old, new in read])
    return FileRows(columns, lambda: parquet_batches(path, read, columns))


_READERS: Final[Mapping[Kind, Callable[[Path, DataFiles, Mapping[str, str]], FileRows]]] = {
    Kind.CSV: _csv,
    Kind.JSON: _json,
    Kind.PARQUET: _parquet,
    Kind.XLSX: _xlsx,
}
