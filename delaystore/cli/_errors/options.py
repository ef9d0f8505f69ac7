"""The options that the commands of `delaystore errors` share, and what they name."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from delaystore.cli._acting import acting
from delaystore.cli._options import error_queue_option
from delaystore.times import parse_instant

if TYPE_CHECKING:
    from delaystore.cli._endpoint import EndpointOptions
    from delaystore.operations import ErrorFilter, ErrorQueue

ErrorQueueName = Annotated[str, error_queue_option("The error queue.", "errors")]
"""Give it the default `DEFAULT_ERROR_QUEUE`."""
Destination = Annotated[
    str | None,
    typer.Option("--destination", metavar="NAME", help="Only what was to go there; '' for what says nothing of it."),
]
Kind = Annotated[
    str | None,
    typer.Option("--kind", metavar="WORD", help="Only this kind of failure, as in Unroutable, or exception."),
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Only this reason, as `list` shows it; ids and numbers may differ."),
]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only what failed at this time or later.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only what failed before this time.")]


NOT_GIVEN: Final = "looked at {} only: somebody else has the others, or the queue gives none away, as a stream"


def filter_of(
    destination: str | None,
    kind: str | None,
    reason: str | None,
    since: str | None,
    until: str | None,
    message_id: str | None = None,
) -> "ErrorFilter":
    """What the options say; an empty filter where none is given. Raises ConfigurationError."""
    from delaystore.operations import ErrorFilter

    return ErrorFilter(
        destination=destination,
        kind=kind,
        reason=reason,
        message_id=message_id,
        since=None if since is None else parse_instant(since, "--since"),
        until=None if until is None else parse_instant(until, "--until"),
    )


@contextmanager
def open_errors(options: "EndpointOptions", error_queue: str, by: str | None = None) -> Iterator["ErrorQueue"]:
    """The error queue, for the block. Where a store and an endpoint are given, changes are noted there, as of `by`.

    ConfigurationError where no transport is given, or a SQLite file does not exist.
    """
    from delaystore.cli._endpoint import reading
    from delaystore.operations import ErrorQueue

    settings = reading(error_queue)
    if not (options.store and options.endpoint):
        with closing(options.open_transport(existing=True)) as transport:
            yield ErrorQueue(transport, error_queue)
        return
    with options.open(settings) as opened:
        yield acting(opened, by).errors
