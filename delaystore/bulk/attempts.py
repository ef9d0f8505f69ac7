"""One attempt at storing rows, and the end of a load: one transaction, or nothing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from delaystore.bulk.conversion import Conversion, FirstRows
from delaystore.bulk.options import OnDuplicate
from delaystore.bulk.rejects import RejectFolder, Rejects, count_rejects
from delaystore.bulk.staging.abc import FinishedLoad, StagedAttempt, Staging
from delaystore.errors import LoadLostError, RejectedRowsError, StoreUnavailableError

# One attempt at storing rows, and its report: a Spark task, or the whole of a load without Spark.


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """The result of an attempt.

    `staged`: None: the load was finished before. `reject_file`: the name of its file of rejected rows;
    None: it wrote none.
    """

    staged: StagedAttempt | None = None
    rejects: Rejects = field(default_factory=Rejects)
    reject_file: str | None = None


def stage(
    batches: Iterator[pa.RecordBatch],
    conversion: Conversion,
    staging: Staging,
    folder: RejectFolder | None,
    first_rows: FirstRows | None = None,
) -> AttemptReport:
    """Stage the rows of `batches`. Without a folder for rejects, rows after the first reject are only checked.

    `first_rows`: as of `Conversion.convert`.
    """
    with nullcontext() if folder is None else folder.file() as file, staging.attempt() as sink:
        rejects = Rejects()
        for batch in batches:
            converted = conversion.convert(batch, first_rows)
            rejects += count_rejects(converted.rejected)
            if file is not None and converted.rejected is not None:
                file.write(converted.rejected)
            if file is not None or not rejects.count:
                sink.write(converted.staged)
        staged = replace(sink.finish(), rejected=rejects.count)
        if file is not None and rejects.count:
            staging.renew()  # an attempt that outlives its load must not leave a file behind
        return AttemptReport(staged, rejects, None if file is None else file.close())


# The end of a load, where all attempts are known (on Spark's driver): one transaction, or nothing.

ResultT = TypeVar("ResultT")

_TRIES: Final = 5


def promote(
    reports: Sequence[AttemptReport], staging: Staging, rejects: RejectFolder | None, on_duplicate: OnDuplicate
) -> FinishedLoad:
    """Promote the rows that the winning attempts staged. If it raises, nothing is stored, unless it is
    StoreUnavailableError.

    Files of rejected rows are kept before: a load that dies in between is run again, and overwrites them. After a lost
    connection the promotion may have been committed or not: it is tried again, which does nothing if it was. After an
    interruption, such as KeyboardInterrupt, that is unknown too: the files stay.
    """
    if rejects is not None:
        _retried(staging.renew)  # a run that has taken the load over has files of the same names
    try:
        if rejects is None:
            _refuse_rejected(reports, staging)
        else:
            rejects.keep(report.reject_file for report in reports)
        staged = [report.staged for report in reports if report.staged is not None]
        return _retried(lambda: staging.promote(staged, on_duplicate))
    except (StoreUnavailableError, LoadLostError):
        raise  # perhaps it was promoted, and these rows were rejected; or another run has files of the same names
    except Exception:
        if rejects is not None:
            rejects.remove()
        raise


def _retried(step: Callable[[], ResultT]) -> ResultT:
    """Return `step()`, tried again after an outage of the store.

    Raises LoadLostError naming the first outage, if the load's staged rows were lost in one.
    """
    outages: list[StoreUnavailableError] = []

    def attempt() -> ResultT:
        try:
            return step()
        except StoreUnavailableError as error:
            outages.append(error)
            raise
        except LoadLostError as error:
            raise LoadLostError(f"{error}; it failed before with: {outages[0]}") if outages else error from None

    retrying = Retrying(
        retry=retry_if_exception_type(StoreUnavailableError),
        stop=stop_after_attempt(_TRIES),
        wait=wait_exponential(max=8),
        reraise=True,
    )
    return retrying(attempt)


def _refuse_rejected(reports: Sequence[AttemptReport], staging: Staging) -> None:
    """RejectedRowsError if any row was rejected; it names the rows left in the store."""
    rejects = sum((report.rejects for report in reports), Rejects())
    if rejects.count:
        raise RejectedRowsError(
            f"{rejects}; {staging.after_failure}: fix these rows, or name a folder for them with the option rejects"
        )
