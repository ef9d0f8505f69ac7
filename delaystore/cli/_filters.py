"""Which messages a command is about: the options of a filter."""

from collections.abc import Sequence
from typing import Annotated

import typer

from delaystore.cli._arguments import parse_pair
from delaystore.errors import ConfigurationError
from delaystore.filters import MessageFilter
from delaystore.times import parse_instant

Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what is due then or later, as 2027-01-31T09:00:00+01:00.")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only what is due before this time.")]
IdPrefix = Annotated[str | None, typer.Option(metavar="TEXT", help="Only messages whose id begins so.")]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="KEY=VALUE", help="Only messages with this header, compared as text; repeatable."),
]
Failing = Annotated[bool, typer.Option("--failing", help="Only messages that could not be forwarded before.")]
Paused = Annotated[bool, typer.Option("--paused", help="Only what would be due, but for its paused destination.")]


def filter_of(
    destination: str | None,
    since: str | None,
    until: str | None,
    id_prefix: str | None,
    header: Sequence[str] | None,
    *,
    failing: bool,
    paused: bool,
) -> MessageFilter:
    """What the options say; an empty filter where none is given. Raises ConfigurationError, InvalidMessageError."""
    headers = [parse_pair(text, "--header") for text in header or ()]
    if len(dict(headers)) < len(headers):
        raise ConfigurationError("one header is named twice; no message has two values of it")
    return MessageFilter(
        destination=destination,
        since=None if since is None else parse_instant(since, "--since"),
        until=None if until is None else parse_instant(until, "--until"),
        id_prefix=id_prefix,
        headers=dict(headers),
        failing=failing or None,
        paused=paused or None,
    )
