"""What a task does, and what it reports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from delaystore.errors import LoadLostError
from delaystore.loading import attempts
from delaystore.loading.attempts import AttemptReport
from delaystore.loading.conversion import Conversion
from delaystore.loading.rejects import RejectFolder
from delaystore.loading.staging.abc import LoadKey, Staging
from delaystore.spark._writing._worker import spare_imports


@dataclass(frozen=True, slots=True)
class TaskReport(AttemptReport, WriterCommitMessage):
    """What a task attempt has done.

    `key`: which batch of which stream; None: no stream. `again`: of a load that was finished before, its rows now; of
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
    made = attempts.stage(batches, conversion, staging, folder)
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
