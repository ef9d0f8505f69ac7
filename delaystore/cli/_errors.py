"""`delaystore errors`: list, show, replay and discard messages of the error queue."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from delaystore.cli._changing import ActorName, acting
from delaystore.cli._commands import Offered, add_commands, plain_group
from delaystore.cli._options import (
    DEFAULT_ERROR_QUEUE,
    DryRunOption,
    EndpointOptions,
    JsonOption,
    TransportUrl,
    Wide,
    YesOption,
    all_option,
    error_queue_option,
)
from delaystore.cli._output import (
    body_preview,
    can_ask,
    confirm,
    message_lines,
    print_document,
    print_line,
    print_note,
    print_table,
    write,
    write_bytes,
)
from delaystore.cli._signals import StopRequest, second_signal_ends, stop_requests
from delaystore.errors import ConfigurationError, DelaystoreError
from delaystore.stores import documents
from delaystore.text import counted, parse_instant, time_text

if TYPE_CHECKING:
    from delaystore.operations import ErrorFilter, ErrorGroups, ErrorPage, ErrorQueue, ErrorReport

ErrorQueueName = Annotated[str, error_queue_option("Name of the error queue.", "errors")]
"""Give it the default `DEFAULT_ERROR_QUEUE`."""
NotedEndpoint = Annotated[EndpointOptions, Offered("transport", "store", "endpoint", "schema", "table")]
ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Only this reason, as `list` shows it; ids and numbers may differ."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFilterOptions:
    """Which messages of the error queue a command is about, as given on the command line."""

    destination: Annotated[
        str | None,
        typer.Option(
            "--destination", metavar="NAME", help="Only messages for this destination; '' for messages without one."
        ),
    ] = None
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="WORD", help="Only this kind of failure, as Unroutable, or exception."),
    ] = None
    reason: ReasonOption = None
    failed_after: Annotated[
        str | None,
        typer.Option("--failed-after", metavar="TIME", help="Only messages that failed at this time or later."),
    ] = None
    failed_before: Annotated[
        str | None, typer.Option("--failed-before", metavar="TIME", help="Only messages that failed before this time.")
    ] = None

    def filter(self, message_id: str | None = None) -> "ErrorFilter":
        """The filter of the options; empty where none is given. Raises ConfigurationError."""
        from delaystore.operations import ErrorFilter

        return ErrorFilter(
            destination=self.destination,
            kind=self.kind,
            reason=self.reason,
            message_id=message_id,
            since=None if self.failed_after is None else parse_instant(self.failed_after, "--failed-after"),
            until=None if self.failed_before is None else parse_instant(self.failed_before, "--failed-before"),
        )

    def chosen(self, message_id: str | None, *, every: bool) -> "ErrorFilter":
        """As `filter`; ConfigurationError where nothing says which messages are meant, or two things do."""
        wanted = self.filter(message_id)
        if not wanted and not every:
            raise ConfigurationError(
                "no messages are chosen; pass an ID, a filter such as --destination NAME, or --all"
            )
        if wanted and every:
            raise ConfigurationError("messages are chosen twice; pass an ID or a filter, or --all")
        return wanted


NOT_GIVEN: Final = "looked at {} only: other consumers hold the rest, or the queue returns none, as a stream"


@contextmanager
def open_errors(options: "EndpointOptions", error_queue: str, actor: str | None = None) -> Iterator["ErrorQueue"]:
    """The error queue, for the block. Where a store and an endpoint are given, changes are noted there, as of `actor`.

    ConfigurationError where no transport is given, or a SQLite file does not exist.
    """
    from delaystore.cli._options import reading
    from delaystore.operations import ErrorQueue

    settings = reading(error_queue)
    if not (options.store and options.endpoint):
        with closing(options.open_transport(existing=True)) as transport:
            yield ErrorQueue(transport, error_queue)
        return
    with options.open(settings) as opened:
        yield acting(opened, actor).errors


MessageIdArgument = Annotated[str | None, typer.Argument(metavar="ID", help="Id of one message.")]
LimitOption = Annotated[
    int | None, typer.Option(min=1, metavar="NUMBER", help="Maximum number of messages, the oldest first.")
]
_SHOWN = 20
"""Destinations, and reasons, that are listed."""


def replay(
    message_id: MessageIdArgument = None,
    *,
    which: ErrorFilterOptions,
    every: Annotated[bool, all_option("errors_replay")] = False,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="Send the messages here, in place of their destinations.")
    ] = None,
    limit: LimitOption = None,
    dry_run: DryRunOption = False,
    actor: ActorName = None,
    error_queue: ErrorQueueName = DEFAULT_ERROR_QUEUE,
    where: NotedEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Send failed messages again.

    Each message goes to its destination as it was sent, and leaves the error queue once the transport has confirmed it.
    A message that its destination refuses stays. If you stop or kill the command, run it again: no message is lost.
    After a kill, at most 200 messages may be sent twice; between SQL queues, none. With --store and --endpoint the
    audit trail there records the change.
    """
    wanted = which.chosen(message_id, every=every)
    with open_errors(where, error_queue, actor) as queue:
        work = partial(queue.replay, wanted, destination=to, limit=limit, dry_run=dry_run)
        _change(work, "replayed", wanted, limit, as_json=as_json)


def discard(
    message_id: MessageIdArgument = None,
    *,
    which: ErrorFilterOptions,
    every: Annotated[bool, all_option("errors_discard")] = False,
    limit: LimitOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    actor: ActorName = None,
    error_queue: ErrorQueueName = DEFAULT_ERROR_QUEUE,
    where: NotedEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Delete failed messages for good.

    Name one message by its id, or select messages by filters. At a terminal the command asks first. With --store and
    --endpoint the audit trail there records the change.
    """
    wanted = which.chosen(message_id, every=every)
    with open_errors(where, error_queue, actor) as queue:
        if not (dry_run or yes):
            _confirm(lambda: queue.discard(wanted, limit=limit, dry_run=True), error_queue)
        work = partial(queue.discard, wanted, limit=limit, dry_run=dry_run)
        _change(work, "discarded", wanted, limit, as_json=as_json)


def _confirm(preview: Callable[[], "ErrorReport"], error_queue: str) -> None:
    """Ask a terminal; raises typer.Exit where the answer is no."""
    if not can_ask():
        return
    found = preview().done
    if found:
        confirm(f"Discard {counted(found, 'message')} of {error_queue!r} for good?", "nothing is discarded")


def _change(
    work: "Callable[..., ErrorReport]", done: str, wanted: "ErrorFilter", limit: int | None, *, as_json: bool
) -> None:
    """Do `work`, and report; raises typer.Exit where not all of it was done."""
    from delaystore.cli._progress import ProgressBar

    with second_signal_ends(), stop_requests() as stop, ProgressBar(transient=True) as bar:
        report = work(progress=bar.show, stopping=lambda: stop.made)
    if as_json:
        print_document({"filter": wanted.as_dict(), **documents.record(report)})
    else:
        _print(report, done)
    is_over = report.problem is not None or report.interrupted or (limit is not None and report.done >= limit)
    if report.examined < report.depth and not is_over:
        print_note(NOT_GIVEN.format(f"{report.examined:,} of {counted(report.depth, 'message')}"))
    _exit(report, stop, wanted)


def _print(report: "ErrorReport", done: str) -> None:
    print_line(f"{'would be ' if report.dry_run else ''}{done}: {counted(report.done, 'message')}")
    for destination, count in report.destinations.most_common(_SHOWN):
        print_line(f"  {destination or 'to nowhere known'}: {count:,}")
    more = len(report.destinations) - _SHOWN
    if more > 0:
        print_line(f"  and to {counted(more, 'more destination')}")
    for reason, count in report.left.most_common(_SHOWN):
        print_note(f"{'would stay' if report.dry_run else 'stays'}: {counted(count, 'message')}: {reason}")


def _exit(report: "ErrorReport", stop: StopRequest, wanted: "ErrorFilter") -> None:
    if report.perhaps_twice:
        print_note(f"perhaps sent, and still in the error queue: {counted(report.perhaps_twice, 'message')}")
    if report.problem is not None:
        raise DelaystoreError(f"the command ended early: {report.problem}; run it again for the remaining messages")
    if report.interrupted:
        print_note(
            f"stopped after {report.examined:,} of {counted(report.depth, 'message')}; "
            "run it again for the remaining messages"
        )
        raise typer.Exit(stop.exit_code)
    if wanted.message_id is not None and not report.done and not report.left:
        print_note(f"not found: no message {wanted.message_id!r} is in the error queue")
        raise typer.Exit(1)
    if report.left:
        raise typer.Exit(1)


def list_errors(
    messages: Annotated[bool, typer.Option("--messages", help="List single messages, in place of groups.")] = False,
    *,
    which: ErrorFilterOptions,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="With --messages: maximum number of messages.")
    ] = 100,
    skip: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="With --messages: number of messages to skip.")
    ] = 0,
    examine: Annotated[
        int,
        typer.Option(
            min=1, max=1_000_000, metavar="NUMBER", help="Maximum number of messages to read, the oldest first."
        ),
    ] = 10_000,
    error_queue: ErrorQueueName = DEFAULT_ERROR_QUEUE,
    where: TransportUrl,
    wide: Wide = False,
    as_json: JsonOption = False,
) -> None:
    """List failed messages in groups.

    A group has one destination, kind and reason. Listing changes nothing. If the queue has too many messages, the list
    ends after 20 s with a note.
    """
    from delaystore.operations.error_queue import groups_document, page_document

    wanted = which.filter()
    with open_errors(where, error_queue) as queue:
        if messages:
            page = queue.messages(wanted, limit=limit, skip=skip, examine=examine)
        else:
            groups = queue.groups(wanted, examine=examine)
    if as_json:
        print_document({"error_queue": error_queue, **(page_document(page) if messages else groups_document(groups))})
    elif messages:
        _print_messages(page, examine, wide=wide)
    else:
        _print_groups(groups, error_queue, examine, wide=wide)


def show(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the message.")],
    body: Annotated[bool, typer.Option("--body", help="Write only the body to standard output, unchanged.")] = False,
    error_queue: ErrorQueueName = DEFAULT_ERROR_QUEUE,
    *,
    where: TransportUrl,
    as_json: JsonOption = False,
) -> None:
    """Show one failed message.

    The message is shown as a replay would send it. Showing changes nothing.
    """
    from delaystore.operations.error_queue import failed_document

    with open_errors(where, error_queue) as queue:
        message = queue.get(message_id)
    if message is None:
        print_note(f"not found: no message {message_id!r} is in the error queue {error_queue!r}")
        raise typer.Exit(1)
    if body:
        write_bytes(message.body or b"")
        return
    document = failed_document(message)
    if as_json:
        print_document(document)
        return
    for line in message_lines(document):
        print_line(line)
    write(f"\n{body_preview(message.body or b'')}\n")


def _print_groups(found: "ErrorGroups", error_queue: str, examine: int, *, wide: bool) -> None:
    rows = [
        (f"{group.count:,}", group.destination or "-", group.kind or "-", group.reason or "-", time_text(group.last))
        for group in found.groups
    ]
    if rows:
        columns = ("messages", "destination", "kind", "reason", "last")
        print_table(columns, rows, right=("messages",), unbroken=("last",), wide=wide)
    print_line(f"{counted(found.depth, 'message')} in the error queue {error_queue!r}")
    if not found.complete:
        print_note(_looked_at(found.examined, found.depth, examine))


def _print_messages(found: "ErrorPage", examine: int, *, wide: bool) -> None:
    rows = [
        (one.message_id or "-", one.destination or "-", one.kind or "-", time_text(one.failed_at), one.reason)
        for one in found.messages
    ]
    print_table(("id", "destination", "kind", "failed", "reason"), rows, unbroken=("failed",), wide=wide)
    if found.next_skip is not None:
        print_note(f"more follow; the next page: --skip {found.next_skip}")
    elif found.examined < found.depth:
        print_note(_looked_at(found.examined, found.depth, examine))


def _looked_at(examined: int, depth: int, examine: int) -> str:
    """`examine`: at how many it was to look."""
    some = f"{examined:,} of {counted(depth, 'message')}"
    if examined >= examine:
        return f"looked at the first {some} only; --examine looks at more"
    if not examined:
        return NOT_GIVEN.format(some)
    return f"looked at the first {some} only: it took too long, or other consumers hold the rest"


errors_app = plain_group(
    """List, replay or discard failed messages.

    Failed messages are in the error queue. The queue may also hold messages of NServiceBus endpoints. These are shown,
    too, and replayed to the queue in which they failed.
    """
)
add_commands(errors_app, {"list": list_errors, "show": show, "replay": replay, "discard": discard})


__all__: list[str] = []
