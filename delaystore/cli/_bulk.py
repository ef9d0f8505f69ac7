"""A change of all messages that match a filter: previewed, confirmed, run with progress, resumed."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from delaystore import documents
from delaystore.amounts import counted
from delaystore.cli._output import print_document, print_table, say, somebody_can_be_asked, tell
from delaystore.cli._signals import StoppedError, StopRequest, stop_requests
from delaystore.errors import ConfigurationError, StoreError
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage
from delaystore.stores.operable import Operation, OperationKind, OperationState
from delaystore.times import time_text

if TYPE_CHECKING:
    from delaystore.cli._endpoint import OpenedEndpoint
    from delaystore.operations import Operations, Preview

ASKED: Final = 1_000
"""From more messages on, a terminal is asked whether it is meant."""
_NAMED: Final = 10
"""Ids that are named of what dispatchers had."""

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many match, and show the first five.")]
Yes = Annotated[
    bool, typer.Option("--yes", help=f"Do not ask, on a terminal, before more than {ASKED:,} messages are changed.")
]
Resume = Annotated[
    str | None,
    typer.Option(metavar="OPERATION", help="Go on with one that was interrupted; `delaystore operations` lists them."),
]


@dataclass(frozen=True, slots=True)
class Words:
    """How a kind of operation is called."""

    do: str
    doing: str
    done: str


WORDS: Final = {
    OperationKind.CANCEL: Words("cancel", "cancelling", "cancelled"),
    OperationKind.RESCHEDULE: Words("reschedule", "rescheduling", "rescheduled"),
}


@dataclass(frozen=True, slots=True)
class BulkChange:
    """A change of all that match `wanted`, with its options as they were given."""

    kind: OperationKind
    wanted: MessageFilter
    _: KW_ONLY
    dry_run: bool
    resume: str | None
    yes: bool
    as_json: bool

    def is_meant(self, *, named: bool, every: bool) -> bool:
        """Whether it is meant, and not messages that are `named` by ids or keys; ConfigurationError where that is open.

        `every`: --all is given.
        """
        which = [named, bool(self.wanted), every, self.resume is not None]
        if not any(which):
            raise ConfigurationError(
                "which messages? pass an ID, --key KEY, a filter such as --destination NAME, or --all"
            )
        if sum(which) > 1:
            raise ConfigurationError(
                "which messages? pass ids or keys, or a filter, or --all, or --resume; only one of these"
            )
        if self.dry_run and (named or self.resume is not None):
            raise ConfigurationError("--dry-run goes with a filter or --all; leave it out")
        return not named

    def make(self, opened: "OpenedEndpoint", operations: "Operations", begin: Callable[[], Operation]) -> None:
        """Do what the options say; `begin` makes a new operation. Raises typer.Exit where not all of it was done."""
        if self.dry_run:
            preview(operations, self.wanted, as_json=self.as_json)
            return
        total = opened.delivery.estimate_count().messages
        if self.resume is None and not self.yes:
            self._confirm(operations)
        with stop_requests() as stop:  # ahead of the beginning: whoever stops then is told which operation is left
            operation = begin() if self.resume is None else self._resumed(operations, self.resume)
            self._run(operations, operation, total, stop)

    def _confirm(self, operations: "Operations") -> None:
        """On a terminal, ask before many messages are changed; raises typer.Exit where the answer is no."""
        if not somebody_can_be_asked():
            return
        found = _counted(operations, self.wanted)
        if found.count <= ASKED:
            return
        say(_matching(found))
        if not typer.confirm(f"{WORDS[self.kind].do} them?", err=True):
            say("nothing is changed")
            raise typer.Exit(1)

    def _resumed(self, operations: "Operations", operation_id: str) -> Operation:
        operation = operations.operation(operation_id)
        if operation is None:
            raise ConfigurationError(f"there is no operation {operation_id!r}; `delaystore operations` lists them")
        if operation.kind is not self.kind:
            command = f"delaystore {WORDS[operation.kind].do} --resume {operation_id}"
            raise ConfigurationError(f"the operation {operation_id} does not {WORDS[self.kind].do}; use `{command}`")
        if operation.state is not OperationState.RUNNING:
            say(f"it has ended already: {operation.state}")
        return operation

    def _run(self, operations: "Operations", operation: Operation, total: int, stop: StopRequest) -> None:
        """Run it to its end, or until `stop` is made, and report. `total`: about how many messages wait."""
        from delaystore.cli._progress_bar import ProgressBar

        words, last = WORDS[self.kind], operation
        if operation.state is OperationState.RUNNING:
            say(f"operation {operation.operation_id}")
        with ProgressBar(transient=True) as bar:

            def watch(now: Operation) -> None:
                nonlocal last
                last = now
                bar.show(words.doing, now.examined, max(total, now.examined))
                if stop.made and now.state is OperationState.RUNNING:
                    raise StoppedError

            try:
                watch(operation)
                ended = operations.run(operation.operation_id, watch)
            except (StoppedError, StoreError) as error:
                bar.end()
                say(_interrupted(last))
                if isinstance(error, StoreError):
                    raise
                raise typer.Exit(stop.exit_code) from None
        _report(ended, as_json=self.as_json)
        if ended.held or ended.state is OperationState.ABANDONED:
            raise typer.Exit(1)


def preview(operations: "Operations", wanted: MessageFilter, *, as_json: bool) -> None:
    """Print how many match, and the first of them."""
    found = _counted(operations, wanted)
    if as_json:
        sample = [documents.summary(message) for message in found.sample]
        of_filter = {"filter": wanted.as_dict(), "about": str(wanted)}
        print_document({"dry_run": True, **of_filter, "count": found.count, "sample": sample})
        return
    tell(f"{_matching(found)}; nothing is changed")
    if found.sample:
        _print_sample(found.sample)
    if found.count > len(found.sample):
        tell(f"... and {found.count - len(found.sample):,} more")


def _print_sample(sample: Sequence[DelayedMessage]) -> None:
    rows = [(message.message_id, message.destination, time_text(message.due_time)) for message in sample]
    print_table(("id", "destination", "due"), rows, unbroken=("due",), cut=("id",))


def _counted(operations: "Operations", wanted: MessageFilter) -> "Preview":
    from delaystore.cli._progress_bar import ProgressBar

    with ProgressBar(transient=True) as bar:
        return operations.preview(wanted, progress=lambda count: bar.show("counting", count, None))


def _matching(found: "Preview") -> str:
    return f"{counted(found.count, 'message')} match{'es' if found.count == 1 else ''}: {found.wanted}"


def _interrupted(operation: Operation) -> str:
    words = WORDS[operation.kind]
    return (
        f"interrupted: {counted(operation.changed, 'message')} {words.done} so far; go on with "
        f"`delaystore {words.do} --resume {operation.operation_id}`"
    )


def _report(operation: Operation, *, as_json: bool) -> None:
    if as_json:
        print_document(documents.record(operation))
    else:
        to = "" if operation.due_time is None else f" to {time_text(operation.due_time)}"
        tell(f"{WORDS[operation.kind].done}{to}: {counted(operation.changed, 'message')} ({operation.wanted})")
    if operation.held:
        named = ", ".join(operation.held_ids[:_NAMED])
        rest = f" and {operation.held - _NAMED:,} more" if operation.held > _NAMED else ""
        say(f"being dispatched, and left alone: {counted(operation.held, 'message')}: {named}{rest}")
