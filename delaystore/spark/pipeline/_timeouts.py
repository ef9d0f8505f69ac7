"""Timeouts that NServiceBus kept in RavenDB or in Azure tables, from JSON exports.

The fields are those of their TimeoutData: Destination, SagaId, State (base64), Time (UTC), Headers,
OwningTimeoutManager. The mapping is that of `delaystore migrate`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, SparkSession

from delaystore.errors import ConfigurationError
from delaystore.records.nservicebus import ADDRESSES, Address
from delaystore.records.reader import RecordMapping, RecordReader
from delaystore.records.times import DueTimes
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
    return _timeouts(spark, paths, "@metadata.@id", endpoint, addresses, whole_files=whole_files)


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
    return _timeouts(spark, paths, "RowKey", endpoint, addresses, whole_files=whole_files)


def _timeouts(
    spark: SparkSession, paths: Paths, id_column: str, endpoint: str | None, addresses: str, *, whole_files: bool
) -> DataFrame:
    columns = {"message_id": id_column, **_COLUMNS}
    reader = RecordReader(RecordMapping(columns, _UTC, nservicebus=True, address=address_of(addresses)))

    def owned(document: Any) -> Iterator[Any]:
        """The endpoint's; what is no object is left for the reader to refuse."""
        for found in documents(document):
            if endpoint is None or not isinstance(found, Mapping) or found.get(_OWNER) == endpoint:
                yield found

    return read_json(spark, paths, lambda record: reader.message(0, record), owned, whole_files=whole_files)


def address_of(addresses: str) -> Address:
    """What a destination means; ConfigurationError for what is neither "queue" nor "msmq"."""
    if addresses not in ADDRESSES:
        raise ConfigurationError(f"addresses={addresses!r} is unknown; known is {', '.join(ADDRESSES)}")
    return ADDRESSES[addresses]
