"""The rows of a file as Spark's reader gives them: of CSV and JSON lines texts alone, of Parquet its types."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from delaystore.loading.conversion.columns import UNREADABLE
from delaystore.loading.conversion.types import Field, texts
from delaystore.loading.reading.csv_rows import csv_rows, header
from delaystore.loading.reading.files import Kind
from delaystore.loading.reading.json_rows import json_names, json_rows
from delaystore.loading.reading.mapping import renamed
from delaystore.loading.reading.parquet_rows import parquet_batches, parquet_columns
from delaystore.loading.reading.text_rows import BODY, TextRow, batches_of


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a file. `columns`: those of each batch; `batches` reads the file, whenever it is called."""

    columns: Sequence[Field]
    batches: Callable[[], Iterator[pa.RecordBatch]]


def read_rows(path: Path, kind: Kind, mapping: Mapping[str, str]) -> Rows:
    """The rows of a file, which was checked if it is CSV; `mapping`: its column of a message's column.

    A line that cannot be read is a row that the conversion rejects, with the line as its body if there is such a
    column. ConfigurationError for a file that cannot be read, or that lacks a column of the mapping.
    """
    return _READERS[kind](path, mapping)


def _csv(path: Path, mapping: Mapping[str, str]) -> Rows:
    names = header(path)
    return _texts(names, mapping, lambda body: csv_rows(path, names, body))


def _json(path: Path, mapping: Mapping[str, str]) -> Rows:
    names = json_names(path)
    return _texts(names, mapping, lambda _: json_rows(path, names))


def _texts(names: Sequence[str], mapping: Mapping[str, str], rows: Callable[[int | None], Iterator[TextRow]]) -> Rows:
    read = renamed(names, mapping)
    indices, new = [names.index(old) for old, _ in read], [name for _, name in read]
    body = next((index for index, name in zip(indices, new, strict=True) if name.lower() == BODY), None)
    return Rows(tuple(texts([*new, UNREADABLE])), lambda: batches_of(rows(body), indices, new))


def _parquet(path: Path, mapping: Mapping[str, str]) -> Rows:
    found = {field.name: (field, kind) for field, kind in parquet_columns(path)}
    read = renamed(list(found), mapping)
    kinds = [found[old][1] for old, _ in read]
    columns = tuple(Field(new, found[old][0].type) for old, new in read)
    return Rows(columns, lambda: parquet_batches(path, read, kinds))


_READERS: Final[Mapping[Kind, Callable[[Path, Mapping[str, str]], Rows]]] = {
    Kind.CSV: _csv,
    Kind.JSON: _json,
    Kind.PARQUET: _parquet,
}
