"""What a task does, and what it reports."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from delaystore.errors import LoadLostError, RejectedRowsError
from delaystore.loading.conversion.batches import Conversion
from delaystore.loading.rejects.counts import Rejects, count_rejects
from delaystore.loading.rejects.folder import RejectFolder
from delaystore.loading.staging.abc import LoadKey, StagedAttempt, Staging
from delaystore.spark._writing._worker import spare_imports


@dataclass(frozen=True, slots=True)
class TaskReport(WriterCommitMessage):
    """What a task attempt has done.

    `staged`: None: the load was finished before. `reject_file`: the name of its file of rejected rows;
    None: it wrote none. `key`: which batch of which stream; None: no stream. `again`: of a load that
    was finished before, its rows now; of such a batch of a stream, its messages.
    """

    staged: StagedAttempt | None = None
    rejects: Rejects = field(default_factory=Rejects)
    reject_file: str | None = None
    key: LoadKey | None = None
    again: int = 0


def stage(
    batches: Iterator[pa.RecordBatch],
    conversion: Conversion,
    staging: Staging,
    folder: RejectFolder | None,
    key: LoadKey | None = None,
) -> TaskReport:
    """Stage what `batches` hold. Without a folder for rejects, rows after the first reject are only checked."""
    with nullcontext() if folder is None else folder.file() as file, staging.attempt() as sink:
        rejects = Rejects()
        for batch in batches:
            converted = conversion.convert(batch)
            rejects += count_rejects(converted.rejected)
            if file is not None and converted.rejected is not None:
                file.write(converted.rejected)
            if file is not None or not rejects.count:
                sink.write(converted.staged)
        staged = sink.finish()
        if file is not None and rejects.count:
            staging.renew()  # a task that outlives its load must not leave a file behind
        report = TaskReport(staged, rejects, None if file is None else file.close(), key)
    spare_imports()
    return report


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


def refuse_rejected(reports: Sequence[TaskReport], staging: Staging) -> None:
    """RejectedRowsError if any row was rejected; it says what is left in the store."""
    rejects = sum((report.rejects for report in reports), Rejects())
    if rejects.count:
        raise RejectedRowsError(
            f"{rejects}; {staging.after_failure}: mend these rows, or name a folder for them with the option rejects"
        )
