"""What the commands ask and tell that delete what is declared on a broker."""

from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any, Protocol

import typer

from delaystore.amounts import counted
from delaystore.cli._broker_reports import part_document
from delaystore.cli._output import say, somebody_can_be_asked, tell
from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.topology import Exchange, Queue


class Deletion(Protocol):
    """What was deleted, and how many messages were lost with it."""

    @property
    def deleted(self) -> Sequence[Exchange | Queue]:
        """The parts that are gone."""

    @property
    def lost(self) -> int:
        """Messages."""


def ask_whether_to_delete(question: str) -> None:
    """Ask on the terminal. Raises typer.Exit where the answer is no, and ConfigurationError where nobody answers."""
    if not somebody_can_be_asked():
        raise ConfigurationError("nobody can be asked whether to delete; pass --yes")
    if not typer.confirm(question, err=True):
        say("nothing was deleted")
        raise typer.Exit(1)


@contextmanager
def telling_what_is_deleted(deleted: Sized) -> Iterator[None]:
    """Say how many of the parts are `deleted` where the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"deleted until then: {counted(len(deleted), 'part')}; run it again to delete the rest")
        raise


def tell_planned(parts: Iterable[object]) -> None:
    """A line for each of the parts that would be deleted."""
    for part in parts:
        tell(f"would delete: {part}")


def say_obstacle(obstacle: str | None) -> None:
    """Why nothing is deleted, if so."""
    if obstacle is not None:
        say(f"not to be deleted without --force: {obstacle}")


def tell_deleted(deletion: Deletion, *more: object, what: str, kept: Iterable[str] = ()) -> None:
    """A line for each part, and for `more`. `what`: what there is none of, if so. `kept`: sentences on what stays."""
    for part in (*deletion.deleted, *more):
        tell(f"deleted: {part}")
    if not deletion.deleted:
        tell(f"nothing to delete: there is no {what}")
    for sentence in kept:
        say(sentence)
    if deletion.lost:
        say(f"{counted(deletion.lost, 'message')} lost")


def deletion_document(deletion: Deletion) -> dict[str, Any]:
    """What was deleted, in JSON."""
    return {
        "dry_run": False,
        "deleted": [part_document(part) for part in deletion.deleted],
        "lost": deletion.lost,
    }
