"""Messages of other programs' exports in JSON: timeouts of NServiceBus, tasks of Celery."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType

from delaystore.bulk.columns import STAGED, UNREADABLE
from delaystore.bulk.spark._columns import arrow_column
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations.records.nservicebus import ADDRESSES, AddressRule
from delaystore.migrations.records.reader import RecordMapping, RecordReader
from delaystore.migrations.records.times import DueTimes, due_times
from delaystore.stores.sql.rows import to_row
from delaystore.text import JsonError, parse_json

# Messages as rows of a DataFrame.

_NAMES: Final = ("message_id", "destination", "due_time", "body", "headers", "properties")
_ROW: Final = pa.struct(
    [*(STAGED.field(name).with_nullable(True) for name in _NAMES), pa.field(UNREADABLE, pa.string())]
)
"""`headers` and `properties` are JSON objects as the codec of stores writes them. The last column says why a row could
not be read; null: it could."""

ReadRecord = Callable[[Mapping[str, Any]], DelayedMessage]
"""From a record to its message; raises InvalidMessageError."""


def messages_in(frame: DataFrame, column: Column, read: Callable[[Any], Iterable[Mapping[str, Any]]]) -> DataFrame:
    """The messages that `read` finds in each value of `column`, as rows. Runs in Spark's Python workers."""

    def found(values: pa.Array) -> pa.Array:
        return pa.array([list(read(value)) for value in values.to_pylist()], pa.list_(_ROW))

    return frame.select(sf.inline(arrow_column(found, column, ArrayType(from_arrow_type(_ROW)))))


def row(read: ReadRecord, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of the record's message, by column; where there is none, a row that the writer rejects, and why."""
    try:
        return to_row(read(record))
    except InvalidMessageError as error:
        return unreadable(str(error), json.dumps(record, default=_plain, ensure_ascii=False))


def unreadable(reason: str, raw: str) -> Mapping[str, Any]:
    """A row that the writer rejects for `reason`; its body is `raw`, the unreadable data."""
    return {"body": _bytes(raw), UNREADABLE: _bytes(reason).decode()}


def _bytes(text: str) -> bytes:
    """Of any text, also of one that UTF-8 cannot have."""
    return text.encode(errors="backslashreplace")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


# JSON as people export it: lines, arrays, or pages that hold an array.

Paths = str | Sequence[str]
Records = Callable[[Any], Iterator[Any]]
"""The records in a JSON document."""
_PAGES: Final = ("Results", "Docs", "value", "items")
"""Where RavenDB's queries and dumps, and Azure's pages, keep their array."""


def read_json(spark: SparkSession, paths: Paths, read: ReadRecord, records: Records, *, whole_files: bool) -> DataFrame:
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


def _rows(text: str, read: ReadRecord, records: Records) -> Iterator[Mapping[str, Any]]:
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


# Timeouts that NServiceBus kept in RavenDB or in Azure tables, from JSON exports.
#
# The fields are those of their TimeoutData: Destination, SagaId, State (base64), Time (UTC), Headers,
# OwningTimeoutManager. The mapping is that of `delaystore migrate`.

_UTC: Final = DueTimes(zone=ZoneInfo("UTC"))
_TIMEOUT_COLUMNS: Final = {
    "destination": "Destination",
    "due_time": "Time",
    "body_base64": "State",
    "headers": "Headers",
    "saga_id": "SagaId",
}
_OWNER: Final = "OwningTimeoutManager"


def ravendb_timeouts(
    spark: SparkSession,
    paths: Paths,
    *,
    endpoint: str | None = None,
    addresses: str = "queue",
    whole_files: bool = False,
) -> DataFrame:
    """The timeouts of a RavenDB export.

    Args:
        spark: The session.
        paths: Files, folders or globs of JSON documents, one a line.
        endpoint: Only timeouts that this NServiceBus endpoint owns; None: all.
        addresses: "msmq" where destinations are `queue@machine`, else "queue".
        whole_files: One document a file: an array, a dump with `Docs`, or a query's answer with `Results`. Each file
            must fit into a task's memory.

    Returns:
        The messages, for the writer.

    Raises:
        ConfigurationError: `addresses` is something else.

    """
    return _timeouts(spark, paths, "@metadata.@id", endpoint, addresses, whole_files=whole_files)


def azure_timeouts(
    spark: SparkSession,
    paths: Paths,
    *,
    endpoint: str | None = None,
    addresses: str = "queue",
    whole_files: bool = False,
) -> DataFrame:
    """The timeouts of an export of Azure tables.

    `State` must be in the export in base64: Azure keeps it in a blob that `StateAddress` names.

    Args:
        spark: The session.
        paths: As of `ravendb_timeouts`.
        endpoint: As of `ravendb_timeouts`.
        addresses: As of `ravendb_timeouts`.
        whole_files: One document a file: an array, or a page with `value` or `items`.

    Returns:
        The messages, for the writer.

    Raises:
        ConfigurationError: `addresses` is something else.

    """
    return _timeouts(spark, paths, "RowKey", endpoint, addresses, whole_files=whole_files)


def _timeouts(
    spark: SparkSession, paths: Paths, id_column: str, endpoint: str | None, addresses: str, *, whole_files: bool
) -> DataFrame:
    columns = {"message_id": id_column, **_TIMEOUT_COLUMNS}
    reader = RecordReader(RecordMapping(columns, _UTC, nservicebus=True, address=address_of(addresses)))

    def owned(document: Any) -> Iterator[Any]:
        """The endpoint's; the reader refuses a value that is no object."""
        for found in documents(document):
            if endpoint is None or not isinstance(found, Mapping) or found.get(_OWNER) == endpoint:
                yield found

    return read_json(spark, paths, lambda record: reader.message(0, record), owned, whole_files=whole_files)


def address_of(addresses: str) -> AddressRule:
    """The meaning of a destination; ConfigurationError for a name other than "queue" and "msmq"."""
    if addresses not in ADDRESSES:
        raise ConfigurationError(f"addresses={addresses!r} is unknown; known is {', '.join(ADDRESSES)}")
    return ADDRESSES[addresses]


# Celery tasks with an ETA, from dumps: raw messages, or what `celery inspect scheduled --json` prints.

_TASK_COLUMNS: Final = {
    "message_id": "headers.id",
    "destination": "destination",
    "due_time": "headers.eta",
    "headers": "headers",
    "content_type": "content-type",
    "content_encoding": "content-encoding",
    "correlation_id": "properties.correlation_id",
    "reply_to": "properties.reply_to",
    "priority": "properties.priority",
    "delivery_mode": "properties.delivery_mode",
}
_NO_CALLBACKS: Final = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def celery_tasks(
    spark: SparkSession,
    paths: Paths,
    *,
    queue: str | None = None,
    time_zone: str | None = None,
    whole_files: bool = False,
) -> DataFrame:
    """The tasks of a dump, as messages that a Celery worker runs when they arrive.

    A document is a message as Celery writes it (headers, properties, body; what Redis holds, for example), or an answer
    of `celery inspect scheduled --json`; of that answer the task's callbacks and chains are not known.

    Args:
        spark: The session.
        paths: Files, folders or globs of JSON documents, one a line.
        queue: The queue for all tasks; None: back where they came from.
        time_zone: The time zone of an eta without offset; None: such an eta cannot be read.
        whole_files: One document a file.

    Returns:
        The messages, for the writer.

    Raises:
        ConfigurationError: The time zone is unknown.

    """
    times = due_times(None, time_zone)
    return read_json(spark, paths, lambda record: _message(record, queue, times), _tasks, whole_files=whole_files)


def _message(record: Mapping[str, Any], queue: str | None, times: DueTimes) -> DelayedMessage:
    raw = _raw(record)
    if not isinstance(raw.get("headers"), Mapping) or not raw["headers"].get("eta"):
        raise InvalidMessageError("it is no task with an eta")
    properties = _object(raw, "properties")
    encoded = properties.get("body_encoding") == "base64"
    body = {"body_base64" if encoded else "body": "body"}
    reader = RecordReader(RecordMapping({**_TASK_COLUMNS, **body}, times))
    where = queue or _address(_object(properties, "delivery_info"))
    return reader.message(0, {**raw, "destination": where})


def _tasks(document: Any) -> Iterator[Any]:
    """The tasks of a dump. The answer of `celery inspect` is an object of lists, by worker."""
    if isinstance(document, Mapping) and document and all(isinstance(tasks, list) for tasks in document.values()):
        for tasks in document.values():
            yield from tasks
    else:
        yield from documents(document)


def _raw(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message as it was sent, of a raw record or of an inspected task."""
    request = record.get("request")
    if not isinstance(request, Mapping):
        return record
    identifier = request.get("id")
    headers = {"lang": "py", "task": request.get("name"), "id": identifier, "root_id": identifier}
    return {
        "headers": {**headers, "eta": record.get("eta"), "retries": 0},
        "properties": {
            "correlation_id": identifier,
            "delivery_info": request.get("delivery_info"),
            "priority": record.get("priority"),
            "delivery_mode": 2,
        },
        "body": json.dumps([request.get("args"), request.get("kwargs"), _NO_CALLBACKS]),
        "content-type": "application/json",
        "content-encoding": "utf-8",
    }


def _object(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object of that name, an empty one where there is none; InvalidMessageError for anything else."""
    found = record.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidMessageError(f"its field {name} is no object")
    return found


def _address(delivery_info: Mapping[str, Any]) -> str | None:
    """Where it came from: a queue, or an exchange and its key; None: it does not say."""
    exchange, key = delivery_info.get("exchange"), delivery_info.get("routing_key")
    if not key or not isinstance(key, str):
        return None
    if not exchange:
        return key
    try:
        return f"/exchanges/{quote(exchange, safe='')}/{quote(key, safe='')}"
    except (TypeError, UnicodeEncodeError):  # no text, or half a surrogate pair
        raise InvalidMessageError(
            "its delivery_info has an exchange or a routing_key that no address can hold"
        ) from None
