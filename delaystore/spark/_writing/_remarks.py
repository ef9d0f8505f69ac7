"""What a user is told of a load that has not stored all rows, though nothing failed."""

from collections.abc import Sequence
from contextlib import suppress

from delaystore.errors import ConfigurationError
from delaystore.loading.attempts import AttemptReport
from delaystore.loading.options import is_unnamed
from delaystore.loading.rejects import Reason, RejectFolder, Rejects, shown
from delaystore.loading.staging.abc import FinishedLoad
from delaystore.spark._driver_service.client import DriverClient


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
    told = (
        f"the load {finished.key.load_id!r} was finished at {finished.finished_at.isoformat(timespec='seconds')}, with "
        f"{finished.brought} messages; nothing was stored now"
    )
    if again == finished.brought + rejected:
        return told
    return f"{told}, though there are {again} rows: load other data under another load id"
