"""Timeouts that NServiceBus kept in RavenDB or in Azure tables, from JSON exports.

The fields are those of their TimeoutData: Destination, SagaId, State (base64), Time (UTC), Headers,
OwningTimeoutManager. The mapping is that of `delaystore migrate`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, SparkSession

from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage
from delaystore.records.due_times import DueTimes
from delaystore.records.mapping import RecordMapping
from delaystore.records.nservicebus import ADDRESSES, Address
from delaystore.records.reader import RecordReader
from delaystore.spark.pipeline._json_files import Paths, documents, read_json

_UTC: Final = DueTimes(zone=ZoneInfo("UTC"))
_COLUMNS: Final = {
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

    `paths`: files, folders or globs of JSON documents, one a line; or, with `whole_files`, one a file: an array, a dump
    with `Docs`, or a query's answer with `Results` (such a file must fit into a task's memory). `endpoint`: only those
    it owns; None: all. `addresses`: "msmq" where destinations are `queue@machine`.
    Raises ConfigurationError for other addresses.
    """
    timeouts = _Timeouts("@metadata.@id", endpoint, addresses)
    return read_json(spark, paths, timeouts.message, timeouts.records, whole_files=whole_files)


def azure_timeouts(
    spark: SparkSession,
    paths: Paths,
    *,
    endpoint: str | None = None,
    addresses: str = "queue",
    whole_files: bool = False,
) -> DataFrame:
    """The timeouts of an export of Azure tables. As `ravendb_timeouts`, but pages have `value` or `items`.

    `State` must be in the export in base64: Azure keeps it in a blob that `StateAddress` names.
    """
    timeouts = _Timeouts("RowKey", endpoint, addresses)
    return read_json(spark, paths, timeouts.message, timeouts.records, whole_files=whole_files)


class _Timeouts:
    def __init__(self, id_column: str, endpoint: str | None, addresses: str) -> None:
        columns = {"message_id": id_column, **_COLUMNS}
        mapping = RecordMapping(columns, _UTC, nservicebus=True, address=address_of(addresses))
        self._reader = RecordReader(mapping)
        self._endpoint = endpoint

    def records(self, document: Any) -> Iterator[Any]:
        """The endpoint's; what is no object is left for the reader to refuse."""
        for found in documents(document):
            if self._endpoint is None or not isinstance(found, Mapping) or found.get(_OWNER) == self._endpoint:
                yield found

    def message(self, record: Mapping[str, Any]) -> DelayedMessage:
        """Its message; raises InvalidMessageError."""
        return self._reader.message(0, record)


def address_of(addresses: str) -> Address:
    """What a destination means; ConfigurationError for what is neither "queue" nor "msmq"."""
    if addresses not in ADDRESSES:
        raise ConfigurationError(f"addresses={addresses!r} is unknown; known is {', '.join(ADDRESSES)}")
    return ADDRESSES[addresses]
