"""What a user is told of a load that has stored nothing, though nothing failed."""

from delaystore.loading.options import is_unnamed
from delaystore.loading.staging.abc import FinishedLoad


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
