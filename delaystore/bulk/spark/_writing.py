"""Writers, for a DataFrame and for a stream: tasks stage, and the driver promotes what winning attempts staged."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from typing_extensions import override

from delaystore.bulk.attempts import AttemptReport, promote
from delaystore.bulk.attempts import stage as stage_rows
from delaystore.bulk.conversion import Conversion, plan_conversion
from delaystore.bulk.options import WriteOptions, is_unnamed, new_load_id
from delaystore.bulk.rejects import Reason, RejectFolder, Rejects, reject_folder, shown
from delaystore.bulk.spark._columns import fields_of
from delaystore.bulk.spark._driver_client import DriverClient
from delaystore.bulk.staging import FinishedLoad, LoadKey, LoadOwner, Staging, open_staging
from delaystore.errors import ConfigurationError, DelaystoreError, LoadLostError, StoreUnavailableError
from delaystore.message import new_message_id

# What a worker process of Spark's needs to be quick at its next task.


def spare_imports() -> None:
    """At the end of a worker's first task: leave imported modules out of all further garbage collections.

    Spark's daemon collects after each task, and would walk over every object of SQLAlchemy's, psycopg's and our
    modules each time: 50 ms of the processor, while staging ten rows takes 10. Outside of a task, nothing happens.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    """Once in a process: the garbage of later tasks must be found. The first one's goes before."""
    gc.collect()
    gc.freeze()


# What a task does, and what it reports.


@dataclass(frozen=True, slots=True)
class TaskReport(AttemptReport, WriterCommitMessage):
    """The result of a task attempt.

    `key`: the stream and its batch; None: no stream. `again`: of a load that was finished before, its rows now; of
    such a batch of a stream, its messages.
    """

    key: LoadKey | None = None
    again: int = 0


def stage(
    batches: Iterator[pa.RecordBatch],
    conversion: Conversion,
    staging: Staging,
    folder: RejectFolder | None,
    key: LoadKey | None = None,
) -> TaskReport:
    """As `attempts.stage`, in a task."""
    made = stage_rows(batches, conversion, staging, folder)
    spare_imports()
    return TaskReport(made.staged, made.rejects, made.reject_file, key)


def count_rows(batches: Iterator[pa.RecordBatch]) -> int:
    """How many rows `batches` hold, of a load that was finished before; Spark ends a worker that leaves some unread."""
    count: int = sum(batch.num_rows for batch in batches)
    spare_imports()
    return count


def count_messages(batches: Iterator[pa.RecordBatch], conversion: Conversion) -> int:
    """How many messages `batches` hold, of a stream's batch that was finished before."""
    return sum(conversion.convert(rows).staged.num_rows for rows in batches)


def reports_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport]:
    """The messages of all tasks; LoadLostError if one is missing."""
    reports = [message for message in messages if isinstance(message, TaskReport)]
    if len(reports) < len(messages):
        raise LoadLostError("Spark did not say what some tasks have staged; run the load again")
    return reports


# Reports to the user about a load that has not stored all rows, though nothing failed.


def warn(driver: DriverClient | None, text: str) -> None:
    """Tell the user, if there is a way."""
    if driver is not None:
        with suppress(ConfigurationError):
            driver.warn(text)


def warn_of_rejects(driver: DriverClient | None, reports: Sequence[AttemptReport], folder: RejectFolder | None) -> None:
    """How many rows were rejected, and why; their values are in the folder alone."""
    rejects = sum((report.rejects for report in reports), Rejects())
    if folder is not None and rejects.count:
        counts = Rejects({text: Reason(reason.count) for text, reason in rejects.reasons.items()})
        warn(driver, f"{counts}; they are in {shown(folder.location)}, and the other rows were stored")


def empty_load(finished: FinishedLoad) -> str:
    """Of a load that brought no message."""
    if is_unnamed(finished.key.load_id):
        return "the load had no messages, and nothing was stored"
    return (
        f"the load {finished.key.load_id!r} had no messages: nothing was stored, and it counts as finished; load "
        "others under another load id"
    )


def finished_before(finished: FinishedLoad, again: int, rejected: int) -> str:
    """Of a load that an earlier run has finished, and whose `rejected` rows it kept; `again`: how many rows now."""
    text = (
        f"the load {finished.key.load_id!r} was finished at {finished.finished_at.isoformat(timespec='seconds')}, with "
        f"{finished.brought} messages; nothing was stored now"
    )
    if again == finished.brought + rejected:
        return text
    return f"{text}, though there are {again} rows: load other data under another load id"


def of_a_task(options: WriteOptions, driver: DriverClient | None) -> WriteOptions:
    """Divide the limit of the load's rate by the tasks that Spark runs at a time. ConfigurationError if unknown."""
    if options.max_rows_per_second is None:
        return options
    if driver is None:
        raise ConfigurationError(
            "the option maxRowsPerSecond needs the driver service, which register(spark) starts, though not for a "
            "session of Spark Connect, whose driver is elsewhere; there, leave the option out"
        )
    return replace(options, max_rows_per_second=options.max_rows_per_second / max(1, driver.parallelism()))


# Writing a DataFrame: one load.

RENEWALS: Final = 3
"""Signs of life within the length of a lease."""


class BatchWriter(DataSourceArrowWriter):
    """Stages in tasks, and promotes in `commit`: all rows become visible at once, or none.

    Made in one of Spark's planning workers, pickled to the tasks and to another worker that commits. Making it begins
    the load. Raises ConfigurationError for columns or options that cannot work, StoreError and LoadError as
    `Staging.begin`. Of a load that was finished before, rows are counted and nothing is stored; a warning says so.
    """

    def __init__(self, schema: StructType, options: WriteOptions, driver: DriverClient | None) -> None:
        key = LoadKey(options.load_id or new_load_id())
        self._conversion = plan_conversion(fields_of(schema), options, datetime.now(UTC))
        self._rejects = reject_folder(options, key, run=new_message_id())
        self._on_duplicate = options.on_duplicate
        self._staging = open_staging(
            of_a_task(options, driver), options.lease_seconds, None if driver is None else LoadOwner.of(driver.pid)
        )
        self._driver = driver
        self._lease = str(uuid4())
        self._finished = self._begin(key, options.lease_seconds / RENEWALS)

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: stage its rows, unless the load was finished before."""
        if self._finished is not None:
            return TaskReport(again=count_rows(iterator))
        return stage(iterator, self._conversion, self._staging, self._rejects)

    @override
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, once all tasks have succeeded. If it raises, Spark calls `abort`."""
        reports = reports_of(messages)
        finished = self._finished
        if finished is None:
            finished = promote(reports, self._staging, self._rejects, self._on_duplicate)
            self._stop_renewing()
            warn_of_rejects(self._driver, reports, self._rejects)
            if not finished.brought:
                warn(self._driver, empty_load(finished))
        else:
            rejected = 0 if self._rejects is None else sum(1 for _ in self._rejects.kept_lines())
            warn(self._driver, finished_before(finished, sum(report.again for report in reports), rejected))

    @override
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when the load has failed: remove its staging, with any results of tasks."""
        if self._finished is not None:
            return
        self._stop_renewing()
        try:
            self._staging.discard()
        finally:  # after it: a task that still runs finds its load gone, and removes its own file
            if self._rejects is not None:
                self._rejects.remove_pending()

    def _begin(self, key: LoadKey, renewal_seconds: float) -> FinishedLoad | None:
        """Begin the load. Spark aborts only a writer that it has, so the remains of a failure half-way are removed
        here.
        """
        try:
            finished = self._staging.begin(key)
            if finished is None and self._driver is not None:
                self._driver.renew_lease(self._lease, self._staging, renewal_seconds)
        except StoreUnavailableError:
            raise
        except BaseException:
            with suppress(DelaystoreError):
                self._staging.discard()
            raise
        return finished

    def _stop_renewing(self) -> None:
        if self._driver is not None:
            with suppress(ConfigurationError):  # the driver service has gone, which must not undo what was done
                self._driver.stop_renewing(self._lease)


# Writing a stream: a load for each of its batches.

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


class StreamWriter(DataSourceStreamArrowWriter):
    """Stages a batch in tasks, and promotes it in `commit`, once: a batch that was promoted before is skipped.

    Spark makes one for the tasks of each batch, and one more for its commit, so making it changes nothing. Only tasks
    learn which query and batch it is; the query's id stays the same across restarts from its checkpoint.
    Delays begin when the batch does. Raises ConfigurationError for columns or options that cannot work.
    """

    def __init__(self, schema: StructType, options: WriteOptions, driver: DriverClient | None) -> None:
        if options.load_id is not None and not options.id_columns:
            raise ConfigurationError("a stream's batches are known by its checkpoint; leave the option loadId out")
        self._conversion = plan_conversion(fields_of(schema), options, datetime.now(UTC))
        self._options, self._driver = options, driver
        self._staging = open_staging(of_a_task(options, driver), options.lease_seconds)

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
        """Staged rows stay, and are not visible; the query's next batch empties it."""

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
