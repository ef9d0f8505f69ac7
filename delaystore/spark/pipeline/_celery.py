"""Celery tasks with an ETA, from dumps: raw messages, or what `celery inspect scheduled --json` prints."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.records.reader import RecordMapping, RecordReader
from delaystore.records.times import DueTimes, due_times
from delaystore.spark.pipeline._json_files import Paths, documents, read_json

_COLUMNS: Final = {
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

    `paths`: files, folders or globs of JSON documents, one a line; or one a file, with `whole_files`. A document is a
    message as Celery writes it (headers, properties, body; what Redis holds, for example), or an answer of `celery
    inspect scheduled --json`; of that answer the task's callbacks and chains are not known. `queue`: where all go;
    None: back where they came from. `time_zone`: of an eta without offset; None: it cannot be read.
    Raises ConfigurationError for an unknown time zone.
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
    reader = RecordReader(RecordMapping({**_COLUMNS, **body}, times))
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
