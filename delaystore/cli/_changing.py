"""`delaystore cancel`, `reschedule` and `operations`: one message, or many in steps."""

import logging
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typing_extensions import override

from delaystore.cli._commands import add_commands, plain_group
from delaystore.cli._history import last_ending
from delaystore.cli._options import (
    At,
    DelayOption,
    DryRunOption,
    FilterOptions,
    JsonOption,
    KeyOption,
    StoredEndpoint,
    all_option,
    environment_option,
    id_or_key,
    parse_new_due,
)
from delaystore.cli._output import can_ask, confirm, print_document, print_line, print_note, print_table
from delaystore.cli._signals import StoppedAtOnceError, StopRequest, stop_requests
from delaystore.errors import ConfigurationError, StoreError, UnknownLoadError
from delaystore.filters import MessageFilter
from delaystore.message import unmarked
from delaystore.stores import documents
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.records import Load, Operation, OperationKind, OperationState, Way
from delaystore.text import counted, time_text

if TYPE_CHECKING:
    from datetime import datetime

    from delaystore.cli._options import OpenedEndpoint
    from delaystore.operations import Operations, Preview

ASKED: Final = 1_000
"""From more messages on, a terminal is asked whether it is meant."""
_NAMED: Final = 10
"""Ids that are named of what dispatchers had."""
BulkYesOption = Annotated[
    bool,
    typer.Option(
        "--yes",
        help=f"Skip the confirmation prompt before more than {ASKED:,} messages are changed. Scripts see no prompt.",
    ),
]


@dataclass(frozen=True, slots=True)
class OperationWords:
    """How a kind of operation is called."""

    do: str
    doing: str
    done: str


WORDS: Final = {
    OperationKind.CANCEL: OperationWords("cancel", "cancelling", "cancelled"),
    OperationKind.RESCHEDULE: OperationWords("reschedule", "rescheduling", "rescheduled"),
}


@dataclass(frozen=True, slots=True)
class BulkChange:
    """A change of all that match `wanted`, with its options as they were given."""

    kind: OperationKind
    wanted: MessageFilter
    _: KW_ONLY
    dry_run: bool
    yes: bool
    as_json: bool

    def is_meant(self, *, named: bool, every: bool) -> bool:
        """Whether it is meant, and not messages that are `named` by ids or keys; ConfigurationError where that is open.

        `every`: --all is given.
        """
        which = [named, bool(self.wanted), every]
        if not any(which):
            raise ConfigurationError(
                "no messages are chosen; pass an ID, --key KEY, a filter such as --destination NAME, or --all"
            )
        if sum(which) > 1:
            raise ConfigurationError("messages are chosen in several ways; pass ids or keys, or a filter, or --all")
        if self.dry_run and named:
            raise ConfigurationError("--dry-run needs a filter or --all; leave it out")
        return not named

    def make(
        self,
        opened: "OpenedEndpoint",
        operations: "Operations",
        when: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the change of the options. Raises typer.Exit where not all was done.

        `when`: the arguments of a reschedule that say the new due time; None: it is a cancel.
        """
        from delaystore.operations import new_operation_id

        if self.dry_run:
            preview(operations, self.wanted, when, as_json=self.as_json)
            return
        total = opened.delivery.estimate_count().messages
        if not self.yes:
            self._confirm(operations, when)
        operation_id = new_operation_id()
        with stop_requests() as stop:  # before it begins: a stop then still names the operation to resume
            try:
                with stop.interrupting():
                    if when is None:
                        operation = operations.begin_cancel(self.wanted, operation_id=operation_id)
                    else:
                        operation = operations.begin_reschedule(self.wanted, **when, operation_id=operation_id)
            except StoppedAtOnceError:
                operation = _as_left(operations, operation_id, stop)
            ended = _run(operations, operation, total, stop, as_json=self.as_json)
        _exit_unless_whole(ended)

    def _confirm(self, operations: "Operations", when: Mapping[str, Any] | None) -> None:
        """On a terminal, ask before many messages are changed; raises typer.Exit where the answer is no."""
        if not can_ask():
            return
        found = _counted(operations, self.wanted, when)
        if found.count <= ASKED:
            return
        print_note(_matching(found))
        confirm(f"{WORDS[self.kind].do} them?", "nothing is changed")


def _run(operations: "Operations", operation: Operation, total: int, stop: StopRequest, *, as_json: bool) -> Operation:
    """Run it to its end, or until `stop` is made, and report. `total`: about how many messages wait."""
    from delaystore.cli._progress import ProgressBar

    words, last = WORDS[operation.kind], operation
    if operation.state is OperationState.RUNNING:
        print_note(f"operation {operation.operation_id}")
    with ProgressBar(transient=True) as bar:

        def watch(now: Operation) -> None:
            nonlocal last
            last = now
            bar.show(words.doing, now.examined, max(total, now.examined))
            if now.state is OperationState.RUNNING:
                stop.interrupt()

        try:
            with stop.interrupting():
                watch(operation)
                ended = operations.run(operation.operation_id, watch)
        except StoreError:
            bar.end()
            print_note(_interrupted(last))
            raise
        except StoppedAtOnceError:
            bar.end()
            ended = _as_left(operations, operation.operation_id, stop)
    _report_operation(ended, as_json=as_json)
    if ended.cancelled_load is not None:
        with suppress(UnknownLoadError):  # it was forgotten meanwhile
            _print_rest(operations.loads.get(ended.cancelled_load))
    return ended


def _exit_unless_whole(ended: Operation) -> None:
    if ended.held or ended.state is OperationState.ABANDONED:
        raise typer.Exit(1)


def _print_rest(load: Load) -> None:
    """Say on standard error which messages the cancel did not reach, and that a stream goes on."""
    numbers = {
        "delivered": load.delivered or 0,
        "moved to the error queue": load.failed,
        "expired": load.expired,
    }
    parts = [f"{counted(number, 'message')} {how}" for how, number in numbers.items() if number]
    if parts:
        print_note(f"not reached: {', '.join(parts)}")
    if load.is_stream:
        print_note("the stream goes on: its later batches are stored")
    elif load.waiting and load.paused:
        again = f"delaystore loads cancel {shlex.quote(load.load_id)}"
        print_note(f"the load stays paused; run `{again}` again to cancel the rest")


def _as_left(operations: "Operations", operation_id: str, stop: StopRequest) -> Operation:
    """The operation as a stop has left it, if it has ended by now; else says how to go on, and raises typer.Exit."""
    left = operations.operation(operation_id)
    if left is not None and left.state is not OperationState.RUNNING:
        return left
    print_note("interrupted: nothing is changed" if left is None else _interrupted(left))
    raise typer.Exit(stop.exit_code) from None


def preview(
    operations: "Operations", wanted: MessageFilter, when: Mapping[str, Any] | None = None, *, as_json: bool
) -> None:
    """Print how many match, and the first of them; for a reschedule also the old and new due times."""
    found = _counted(operations, wanted, when)
    if as_json:
        of_filter = {"filter": wanted.as_dict(), "about": str(wanted)}
        print_document({"dry_run": True, **of_filter, **found.document()})
        return
    print_line(f"{_matching(found)}; nothing is changed")
    if found.new is not None and found.count:
        first, last = found.found.first_due, found.found.last_due
        rows = [("now", time_text(first), time_text(last)), ("then", _moved(found, first), _moved(found, last))]
        print_table(("due", "first", "last"), rows, unbroken=("due", "first", "last"))
    if found.sample:
        _print_sample(found)
    if found.count > len(found.sample):
        print_line(f"... and {found.count - len(found.sample):,} more")


def _print_sample(found: "Preview") -> None:
    rows = [
        (each.message_id, each.destination, time_text(unmarked(each)), _moved(found, unmarked(each)))
        for each in found.sample
    ]
    columns = ("id", "destination", "due", "new due time")[: 3 if found.new is None else 4]
    print_table(columns, [row[: len(columns)] for row in rows], unbroken=columns[2:])


def _moved(found: "Preview", due_time: "datetime | None") -> str:
    return time_text(found.moved(due_time)) or "out of range, stays"


def _counted(operations: "Operations", wanted: MessageFilter, when: Mapping[str, Any] | None) -> "Preview":
    from delaystore.cli._progress import ProgressBar

    with ProgressBar(transient=True) as bar:
        return operations.preview(wanted, **when or {}, progress=lambda count: bar.show("counting", count, None))


def _matching(found: "Preview") -> str:
    return f"{counted(found.count, 'message')} match{'es' if found.count == 1 else ''}: {found.wanted}"


def _interrupted(operation: Operation) -> str:
    done = f"{counted(operation.changed, 'message')} {WORDS[operation.kind].done}"
    return f"interrupted: {done} so far; go on with `{operation.resume_command}`"


def _report_operation(operation: Operation, *, as_json: bool) -> None:
    if as_json:
        print_document(documents.record(operation))
    else:
        done = f"{WORDS[operation.kind].done}{operation.when}"
        print_line(f"{done}: {counted(operation.changed, 'message')} ({operation.wanted})")
    if operation.held:
        named = ", ".join(operation.held_ids[:_NAMED])
        rest = f" and {operation.held - _NAMED:,} more" if operation.held > _NAMED else ""
        why = "being dispatched" if operation.shift is None else "being dispatched, or with a new due time out of range"
        print_note(f"{why}, and left alone: {counted(operation.held, 'message')}: {named}{rest}")


ActorName = Annotated[
    str | None,
    environment_option("--actor", "Name in the audit trail. Default: user@host.", metavar="NAME"),
]


class _Saying(logging.Handler):
    """Says on standard error that a change was made, but not noted."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        print_note(f"warning: {record.getMessage()}")


_SAYING: Final = _Saying(logging.ERROR)


def acting(opened: "OpenedEndpoint", actor: str | None) -> "Operations":
    """The endpoint's operations, in the name that --actor says."""
    logging.getLogger("delaystore.operations").addHandler(_SAYING)
    operations = opened.delivery.operations
    return operations.acting_as(actor, way=Way.CLI)


_WHY_NOT = {
    ManagementOutcome.BEING_DISPATCHED: "being dispatched",
    ManagementOutcome.NOT_FOUND: "not found",
}


def cancel(
    message_ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of messages.")] = None,
    key: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Name a message by its key; repeatable.")] = None,
    *,
    which: FilterOptions,
    every: Annotated[bool, all_option("cancel")] = False,
    dry_run: DryRunOption = False,
    yes: BulkYesOption = False,
    actor: ActorName = None,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Cancel waiting messages.

    Name messages by ids or --key, or select them by filters. With a filter the command works in steps. If it is
    interrupted, `delaystore operations resume` continues it. Messages that are stored during the operation may or may
    not be cancelled. A message that is being dispatched is not cancelled.
    """
    from delaystore.operations.changes import CancelRequest

    wanted = which.filter()
    bulk = BulkChange(OperationKind.CANCEL, wanted, dry_run=dry_run, yes=yes, as_json=as_json)
    is_bulk = bulk.is_meant(named=bool(message_ids or key), every=every)
    with where.open() as opened:
        operations = acting(opened, actor)
        if is_bulk:
            bulk.make(opened, operations)
            return
        named: list[Mapping[str, str]] = [{"message_id": each} for each in message_ids or ()]
        named += [{"key": each} for each in key or ()]
        requests = [CancelRequest(message_id=each.get("message_id"), key=each.get("key")) for each in named]
        results = operations.do_all(requests)  # in one transaction: after a mistake, none is cancelled
        outcomes = [(each, result.outcome) for each, result in zip(named, results, strict=True)]
        if as_json:
            print_document({"results": [{**each, "outcome": outcome.value} for each, outcome in outcomes]})
        else:
            for each, outcome in outcomes:
                _report(opened, outcome, each, "cancelled")
    _exit_unless_done(*(outcome for _, outcome in outcomes))


ByOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="DURATION",
        help="Move each due time by this span: 7d, or -2h to an earlier time. A day is 24 hours, unless --time-zone is "
        "given.",
    ),
]
ShiftZone = Annotated[
    str | None,
    typer.Option(
        "--time-zone",
        metavar="NAME",
        help="Time zone of --by, as Europe/Berlin: a day keeps the local time when clocks change.",
    ),
]


def reschedule(
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="Id of the message.")] = None,
    key: KeyOption = None,
    delay: DelayOption = None,
    at: At = None,
    by: ByOption = None,
    time_zone: ShiftZone = None,
    *,
    which: FilterOptions,
    every: Annotated[bool, all_option("reschedule")] = False,
    dry_run: DryRunOption = False,
    yes: BulkYesOption = False,
    actor: ActorName = None,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Change the due time of waiting messages.

    --delay and --at give all messages the same due time. --by moves the due time of each message. Rescheduled messages
    get all their retries again. With a filter the command works in steps. If it is interrupted, `delaystore operations
    resume` continues it, and moves no due time twice. Messages that are stored during the operation may or may not be
    rescheduled. A message that is being dispatched keeps its due time.
    """
    wanted = which.filter()
    bulk = BulkChange(OperationKind.RESCHEDULE, wanted, dry_run=dry_run, yes=yes, as_json=as_json)
    is_bulk = bulk.is_meant(named=message_id is not None or key is not None, every=every)
    when = parse_new_due(delay, at, by, time_zone)
    with where.open() as opened:
        operations = acting(opened, actor)
        if is_bulk:
            bulk.make(opened, operations, when)
            return
        named = id_or_key(message_id, key)
        outcome = operations.reschedule_one(message_id, key=key, **when)
        if as_json:
            print_document({**named, "outcome": outcome.value})
        else:
            _report(opened, outcome, named, "rescheduled")
    _exit_unless_done(outcome)


def _report(opened: "OpenedEndpoint", outcome: ManagementOutcome, named: Mapping[str, str], done: str) -> None:
    if outcome is ManagementOutcome.DONE:
        print_line(f"{done}: {_name(named)}")
    else:
        ending = last_ending(opened, named) if outcome is ManagementOutcome.NOT_FOUND else ""
        print_note(f"{_WHY_NOT[outcome]}: {_name(named)}{ending}")


def _name(named: Mapping[str, str]) -> str:
    return named.get("message_id") or f"key {named['key']}"


def _exit_unless_done(*outcomes: ManagementOutcome) -> None:
    if any(outcome is not ManagementOutcome.DONE for outcome in outcomes):
        raise typer.Exit(1)


def list_operations(
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="Maximum number of operations.")
    ] = 20,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """List changes of many messages, newest first.

    The list shows running, interrupted and ended operations. If no process works on a running one, continue it with
    `delaystore operations resume`.
    """
    with where.open() as opened:
        found = opened.delivery.operations.operations(limit)
    if as_json:
        print_document({"operations": documents.field(found)})
    elif not found:
        print_line("no operation was begun")
    else:
        columns = ("operation", "began", "state", "changed", "what")
        print_table(columns, [_row(each) for each in found], right=("changed",), unbroken=columns[:-1])
        for each in found:
            if each.state is OperationState.RUNNING:
                print_note(f"if no process works on {each.operation_id} any more, go on with `{each.resume_command}`")


OperationId = Annotated[str, typer.Argument(metavar="ID", help="Id of the operation.")]


def resume(
    operation_id: OperationId,
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Continue an interrupted operation.

    No message is changed twice. A message that is being dispatched is not changed.
    """
    with where.open() as opened:
        operations = acting(opened, actor)
        operation = operations.operation(operation_id)
        if operation is None:
            raise _unknown(operation_id)
        if operation.state is not OperationState.RUNNING:
            print_note(f"it has ended already: {operation.state}")
        total = opened.delivery.estimate_count().messages
        with stop_requests() as stop:
            _exit_unless_whole(_run(operations, operation, total, stop, as_json=as_json))


def abandon(
    operation_id: OperationId,
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """End an operation without undoing its changes.

    A process that works on the operation stops after the current step.
    """
    with where.open() as opened:
        operations = acting(opened, actor)
        known = operations.operation(operation_id)
        ended = operations.abandon(operation_id)
    if ended is None or known is None:
        raise _unknown(operation_id)
    if as_json:
        print_document(documents.record(ended))
    elif known.state is not OperationState.RUNNING:
        print_note(f"it has ended already: {known.state}")
    else:
        print_line(f"abandoned: {operation_id} ({ended.changed:,} messages were changed before)")
    if known.state is not OperationState.RUNNING:
        raise typer.Exit(1)


def _unknown(operation_id: str) -> typer.Exit:
    print_note(f"not found: no operation {operation_id!r}; `delaystore operations list` shows them")
    return typer.Exit(1)


def _row(operation: Operation) -> tuple[str, ...]:
    """The whole id: it is typed again."""
    what = f"{operation.kind}{operation.when}: {operation.wanted}"
    return operation.operation_id, time_text(operation.began), operation.state.value, f"{operation.changed:,}", what


operations_app = plain_group(
    """List, resume or abandon changes of many messages.

    With a filter, `delaystore cancel` and `delaystore reschedule` change messages in steps, as an operation. Programs
    and the web page can begin operations, too.
    """
)
add_commands(operations_app, {"list": list_operations, "resume": resume, "abandon": abandon})
