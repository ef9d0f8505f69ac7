"""The end of a load, on the driver: one transaction, or nothing."""

from collections.abc import Sequence
from typing import Final

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from delaystore.errors import StoreUnavailableError
from delaystore.spark.conversion.rejects import RejectFolder
from delaystore.spark.options import OnDuplicate
from delaystore.spark.staging.abc import FinishedLoad, StagedAttempt, Staging
from delaystore.spark.writing.task import TaskReport, refuse_rejected, staged_of

_TRIES: Final = 5


def promote(
    reports: Sequence[TaskReport], staging: Staging, rejects: RejectFolder | None, on_duplicate: OnDuplicate
) -> FinishedLoad:
    """Promote what the winning attempts staged; raises what hinders it, and then nothing of it is stored.

    Files of rejected rows are kept before: whoever dies in between runs the load again, and overwrites them. After a
    lost connection nobody knows whether the promotion was committed: it is tried again, which is a no-op if it was.
    """
    try:
        if rejects is None:
            refuse_rejected(reports)
        else:
            rejects.keep(report.rejects for report in reports)
        return _patiently(staging, staged_of(reports), on_duplicate)
    except StoreUnavailableError:
        raise  # perhaps it was promoted, and these rows were rejected
    except BaseException:
        if rejects is not None:
            rejects.remove()
        raise


def _patiently(staging: Staging, attempts: Sequence[StagedAttempt], on_duplicate: OnDuplicate) -> FinishedLoad:
    retrying = Retrying(
        retry=retry_if_exception_type(StoreUnavailableError),
        stop=stop_after_attempt(_TRIES),
        wait=wait_exponential(max=8),
        reraise=True,
    )
    return retrying(staging.promote, attempts, on_duplicate)
