"""JSON as people export it: lines, arrays, or pages that hold an array."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from delaystore.spark.pipeline._rows import Read, messages_in, row, unreadable
from delaystore.strict_json import JsonError, parse_json

Paths = str | Sequence[str]
Records = Callable[[Any], Iterator[Any]]
"""The records in a JSON document."""
_PAGES: Final = ("Results", "Docs", "value", "items")
"""Where RavenDB's queries and dumps, and Azure's pages, keep their array."""


def read_json(spark: SparkSession, paths: Paths, read: Read, records: Records, *, whole_files: bool) -> DataFrame:
    """The messages of the files: JSON documents, one a line, or one a file where `whole_files`."""
    texts = spark.read.text([paths] if isinstance(paths, str) else list(paths), wholetext=whole_files)
    return messages_in(texts, texts["value"], lambda text: _rows(text, read, records))


def documents(found: Any) -> Iterator[Any]:
    """The documents of an export: itself, or those of an array or of a page."""
    if isinstance(found, list):
        yield from found
    elif isinstance(found, Mapping) and (pages := [name for name in _PAGES if isinstance(found.get(name), list)]):
        yield from found[pages[0]]
    else:
        yield found


def _rows(text: str, read: Read, records: Records) -> Iterator[Mapping[str, Any]]:
    if not text.strip("\ufeff \t\r\n"):
        return
    try:
        document = parse_json(text.removeprefix("\ufeff"))
    except JsonError as error:
        yield unreadable(f"it {error}", text)
        return
    for record in records(document):
        if isinstance(record, Mapping):
            yield row(read, record)
        else:
            yield unreadable("it is JSON, but no object", json.dumps(record))
