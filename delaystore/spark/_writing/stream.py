"""Writing a stream: a load for each of its batches."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from typing_extensions import override

from delaystore.errors import ConfigurationError, LoadLostError
from delaystore.loading.attempts import promote
from delaystore.loading.conversion import plan_conversion
from delaystore.loading.options import WriteOptions
from delaystore.loading.rejects import RejectFolder, reject_folder
from delaystore.loading.staging import FinishedLoad, LoadKey, open_staging
from delaystore.spark._driver_service.client import DriverClient
from delaystore.spark._schemas import fields_of
from delaystore.spark._writing._remarks import warn_of_rejects
from delaystore.spark._writing.task import TaskReport, count_messages, reports_of, stage

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


class StreamWriter(DataSourceStreamArrowWriter):
    """Stages a batch in tasks, and promotes it in `commit`, once: a batch that was promoted before is skipped.

    Spark makes one for the tasks of each batch, and one more for its commit, so making it changes nothing. Only tasks
    are told which query and batch it is; the query's id stays the same across restarts from its checkpoint.
    Delays begin when the batch does. Raises ConfigurationError for columns or options that cannot work.
    """

    def __init__(self, schema: StructType, options: WriteOptions, driver: DriverClient | None) -> None:
        if options.load_id is not None and not options.key_columns:
            raise ConfigurationError("a stream's batches are known by its checkpoint; leave the option loadId out")
        self._conversion = plan_conversion(fields_of(schema), options, datetime.now(UTC))
        self._options, self._driver = options, driver
        self._staging = open_staging(options, options.lease_seconds)

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: stage its rows, unless the batch was promoted before."""
        key = _key_of_task()
        if self._staging.join(key) is not None:
            return TaskReport(key=key, again=count_messages(iterator, self._conversion))
        return stage(iterator, self._conversion, self._staging, self._rejects(key), key)

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, once all tasks of the batch have succeeded."""
        reports = reports_of(messages)
        key = reports[0].key if reports else None
        if key is None:
            return  # a batch without tasks
        if key.batch != batchId:
            raise LoadLostError(f"batch {batchId} of the stream brings what was staged for batch {key.batch}")
        finished = self._staging.join(key)
        if finished is None:
            rejects = self._rejects(key)
            promote(reports, self._staging, rejects, self._options.on_duplicate)
            warn_of_rejects(self._driver, reports, rejects)
        else:
            _check_same(finished, key, sum(report.again for report in reports))

    @override
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What tasks have staged stays where nobody sees it; the query's next batch empties it."""

    def _rejects(self, key: LoadKey) -> RejectFolder | None:
        return reject_folder(self._options, key)


def _check_same(finished: FinishedLoad, key: LoadKey, again: int) -> None:
    """Spark repeats its last batch if it died before it noted that as finished; no other batch may be skipped.

    Raises LoadLostError for an earlier batch, and for another number of messages.
    """
    if finished.key.batch == key.batch and again == finished.brought:
        return
    raise LoadLostError(
        f"batch {key.batch} brings {again} messages, and the store has batch {finished.key.batch} of this stream, of "
        f"{finished.brought}: the checkpoint is older than the store; go on with the one that the stream had last, or "
        "begin a new one with onDuplicate=ignore"
    )


def _key_of_task() -> LoadKey:
    context = TaskContext.get()
    query = context and context.getLocalProperty(QUERY_ID)
    batch = context and context.getLocalProperty(BATCH_ID)
    if not query or not batch:
        raise LoadLostError("Spark does not say which query and batch this task belongs to")
    return LoadKey(query, int(batch))
