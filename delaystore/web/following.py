"""Operations on many messages, as pages and the API have them: previewed for a few seconds, run in the background."""

from collections.abc import Callable
from time import monotonic
from typing import Final

from delaystore.amounts import counted
from delaystore.filters import MessageFilter
from delaystore.operations import Operations, Preview
from delaystore.stores.operable import Operation, OperationState
from delaystore.web.jobs import BackgroundJob
from delaystore.web.site import Site

SAMPLE: Final = 5
COUNTING: Final = 4.0
"""Seconds for which a preview counts; then it says: at least so many."""


class _EnoughError(Exception):
    """Counting has taken long enough."""


def previewed(operations: Operations, wanted: MessageFilter) -> Preview:
    """How many match, counted for a few seconds at most, and the first of them."""
    end, reached = monotonic() + COUNTING, 0

    def progress(count: int) -> None:
        nonlocal reached
        reached = count
        if monotonic() > end:
            raise _EnoughError

    try:
        return operations.preview(wanted, sample=SAMPLE, progress=progress)
    except _EnoughError:
        sample = operations.search(wanted, limit=SAMPLE).messages
        return Preview(wanted=wanted, count=reached, sample=sample, complete=False)


def follow(site: Site, operations: Operations, operation: Operation) -> None:
    """Run `operation` in the background, unless this process does so already, or it has ended."""
    if operation.state is not OperationState.RUNNING or site.jobs.on(operation.operation_id) is not None:
        return

    def do(progress: Callable[[int], None]) -> str:
        ended = operations.run(operation.operation_id, lambda step: progress(step.changed))
        site.cached.forget()
        return f"{counted(ended.changed, 'message')} changed"

    site.jobs.begin(BackgroundJob(about=operation.kind.value, by=operations.by, subject=operation.operation_id), do)
