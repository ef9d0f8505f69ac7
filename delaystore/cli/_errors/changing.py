"""`delaystore errors replay` and `discard`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.amounts import counted
from delaystore.cli._acting import By
from delaystore.cli._errors import options
from delaystore.cli._errors.options import NOT_GIVEN, ErrorQueueName, filter_of, open_errors
from delaystore.cli._options import (
    DEFAULT_ERROR_QUEUE,
    Endpoint,
    Json,
    Schema,
    StoreUrl,
    Table,
    TransportUrl,
    all_option,
)
from delaystore.cli._output import print_document, say, somebody_can_be_asked, tell
from delaystore.cli._signals import StopRequest, second_signal_ends, stop_requests
from delaystore.errors import ConfigurationError, DelaystoreError

if TYPE_CHECKING:
    from delaystore.operations import ErrorFilter, ErrorReport
    from delaystore.progress import ProgressListener

    Work = Callable[[ProgressListener, Callable[[], bool]], ErrorReport]

MessageId = Annotated[str | None, typer.Argument(metavar="ID", help="One message, by its id.")]
Limit = Annotated[int | None, typer.Option(min=1, metavar="NUMBER", help="So many messages at most, the oldest first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, on a terminal.")]
_SHOWN = 20
"""Destinations, and reasons, that are listed."""


def replay(
    message_id: MessageId = None,
    destination: options.Destination = None,
    kind: options.Kind = None,
    reason: options.Reason = None,
    since: options.Since = None,
    until: options.Until = None,
    every: Annotated[bool, all_option("errors_replay")] = False,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="Send them there, and not to where they were to go.")
    ] = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    by: By = None,
    error_queue: ErrorQueueName = DEFAULT_ERROR_QUEUE,
    transport: TransportUrl = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Send messages of the error queue again, by id or filter.

    Each goes to its destination as it was sent; once that is confirmed, it leaves the error queue. What its destination
    does not take stays. Interrupted or killed at any point, run it again: nothing is lost, and after a kill 200
    messages at most may be sent twice; between SQL queues none is. With --store and --endpoint the change is noted
    there. Exit code 1: something that matches stays.
    """
    wanted = _wanted(filter_of(destination, kind, reason, since, until, message_id), every)
    from delaystore.cli._endpoint import EndpointOptions

    given = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table, transport=transport)
    with open_errors(given, error_queue, by) as queue:

        def work(progress: "ProgressListener", stopping: Callable[[], bool]) -> "ErrorReport":
            return queue.replay(
                wanted, destination=to, limit=limit, dry_run=dry_run, progress=progress, stopping=stopping
            )

        _change(work, "replayed", wanted, limit, as_json=as_json)


def discard(
    message_id: MessageId = None,
    destination: options.Destination = None,
    kind: options.Kind = None,
    reason: options.Reason = None,
    since: options.Since = None,
    until: options.Until = None,
    every: Annotated[bool, all_option("errors_discard")] = False,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
    error_queue: ErrorQueueName = DEFAULT_ERROR_QUEUE,
    transport: TransportUrl = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Remove messages from the error queue for good.

    By id, or all that match. A terminal is asked before. With --store and --endpoint the change is noted there. Exit
    code 1: something that matches stays.
    """
    wanted = _wanted(filter_of(destination, kind, reason, since, until, message_id), every)
    from delaystore.cli._endpoint import EndpointOptions

    given = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table, transport=transport)
    with open_errors(given, error_queue, by) as queue:
        if not (dry_run or yes):
            _confirm(lambda: queue.discard(wanted, limit=limit, dry_run=True), error_queue)

        def work(progress: "ProgressListener", stopping: Callable[[], bool]) -> "ErrorReport":
            return queue.discard(wanted, limit=limit, dry_run=dry_run, progress=progress, stopping=stopping)

        _change(work, "discarded", wanted, limit, as_json=as_json)


def _wanted(wanted: "ErrorFilter", every: bool) -> "ErrorFilter":
    """`wanted`; ConfigurationError where nothing says which messages are meant, or two things do."""
    if not wanted and not every:
        raise ConfigurationError("which messages? pass an ID, a filter such as --destination NAME, or --all")
    if wanted and every:
        raise ConfigurationError("which messages? pass an ID or a filter, or --all, not both")
    return wanted


def _confirm(preview: Callable[[], "ErrorReport"], error_queue: str) -> None:
    """Ask a terminal; raises typer.Exit where the answer is no."""
    if not somebody_can_be_asked():
        return
    found = preview().done
    if found and not typer.confirm(f"Discard {counted(found, 'message')} of {error_queue!r} for good?", err=True):
        say("nothing is discarded")
        raise typer.Exit(1)


def _change(work: "Work", done: str, wanted: "ErrorFilter", limit: int | None, *, as_json: bool) -> None:
    """Do it, and report; raises typer.Exit where not all of it was done."""
    from delaystore.cli._progress_bar import ProgressBar

    with second_signal_ends(), stop_requests() as stop, ProgressBar(transient=True) as bar:
        report = work(bar.show, lambda: stop.made)
    if as_json:
        print_document({"filter": wanted.as_dict(), **report.as_dict()})
    else:
        _print(report, done)
    is_over = report.problem is not None or report.interrupted or (limit is not None and report.done >= limit)
    if report.examined < report.depth and not is_over:
        say(NOT_GIVEN.format(f"{report.examined:,} of {counted(report.depth, 'message')}"))
    _exit(report, stop, wanted)


def _print(report: "ErrorReport", done: str) -> None:
    tell(f"{'would be ' if report.dry_run else ''}{done}: {counted(report.done, 'message')}")
    for destination, count in report.destinations.most_common(_SHOWN):
        tell(f"  {destination or 'to nowhere known'}: {count:,}")
    more = len(report.destinations) - _SHOWN
    if more > 0:
        tell(f"  and to {counted(more, 'more destination')}")
    for reason, count in report.left.most_common(_SHOWN):
        say(f"{'would stay' if report.dry_run else 'stays'}: {counted(count, 'message')}: {reason}")


def _exit(report: "ErrorReport", stop: StopRequest, wanted: "ErrorFilter") -> None:
    if report.perhaps_twice:
        say(f"perhaps sent, and still in the error queue: {counted(report.perhaps_twice, 'message')}")
    if report.problem is not None:
        raise DelaystoreError(f"it ended early: {report.problem}; run it again for the rest")
    if report.interrupted:
        say(f"stopped after {report.examined:,} of {counted(report.depth, 'message')}; run it again for the rest")
        raise typer.Exit(stop.exit_code)
    if wanted.message_id is not None and not report.done and not report.left:
        say(f"not found: no message {wanted.message_id!r} is in the error queue")
        raise typer.Exit(1)
    if report.left:
        raise typer.Exit(1)
