"""`delaystore ingest delete`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.amounts import counted
from delaystore.cli._broker_options import BrokerUrl, DryRun, ManagementUrl
from delaystore.cli._broker_reports import part_document
from delaystore.cli._deletion import (
    ask_whether_to_delete,
    deletion_document,
    say_obstacle,
    tell_deleted,
    tell_planned,
    telling_what_is_deleted,
)
from delaystore.cli._ingest.options import Exchange, Out, Queue, open_broker
from delaystore.cli._options import Json, environment_option
from delaystore.cli._output import print_document, say
from delaystore.transports.rabbitmq.topology import layout

if TYPE_CHECKING:
    from delaystore.cascades import Deletion, DeletionCheck


def delete(
    exchange: Exchange,
    out: Out = None,
    queue: Queue = None,
    with_out: Annotated[
        bool,
        environment_option("--with-out", "Delete OUT, too, although queues are bound to it.", group="ingest_delete"),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Delete although messages are in it: they are lost. Also with consumers.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Delete an ingress: E, its queues, and OUT where nothing is bound to it.

    Refuses while messages are in one of the queues, or somebody takes from them. E stays where others are bound to it.
    Needs the management API, which alone counts every message. It checks twice, six seconds apart, since the broker's
    counts can be that old. Exit code 1: refused, and nothing was deleted.
    """
    from delaystore.cascades import STATISTICS_AGE, TopologyInUseError
    from delaystore.ingress import topology as ingress

    names = ingress.IngressNames.of(exchange, queue=queue, out=out)
    with open_broker(broker, management) as client:
        found = ingress.check_deletion(client, names, with_out=with_out)
        refused = found.uses.certain is not None and not force
        if dry_run or refused:
            _print_check(found, exchange, dry_run, as_json)
            raise typer.Exit(1 if refused else 0)
        _confirm(found, f"{exchange!r} on {client.label}", yes)
        if found.queues and not force:
            say(f"checking again in {STATISTICS_AGE:g} s: the broker's counts may be that old")
        deleted: list[layout.Exchange | layout.Queue] = []
        try:
            with telling_what_is_deleted(deleted):
                deletion = ingress.delete(client, names, with_out=with_out, force=force, on_deleted=deleted.append)
        except TopologyInUseError as error:
            say(str(error))
            raise typer.Exit(1) from None
    _print_deletion(deletion, exchange, as_json)


def _confirm(found: "DeletionCheck", what: str, yes: bool) -> None:
    if not found.parts:
        return
    for binding in found.cut_off:
        say(f"caution: {binding} goes, too")
    if not yes:
        lost = f"; {found.uses.obstacle}" if found.uses.obstacle else ""
        ask_whether_to_delete(f"Delete {what}, {counted(len(found.parts), 'part')}{lost}?")


def _print_check(found: "DeletionCheck", exchange: str, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_document({"exchange": exchange, "dry_run": dry_run, "deleted": [], **_document(found)})
        return
    if dry_run:
        tell_planned(found.parts)
        for binding in found.cut_off:
            say(f"caution: {binding} would go, too")
        for sentence in found.kept:
            say(sentence)
    say_obstacle(found.uses.certain)


def _print_deletion(deletion: "Deletion[DeletionCheck]", exchange: str, as_json: bool) -> None:
    if as_json:
        print_document({"exchange": exchange, **deletion_document(deletion), **_document(deletion.check)})
    else:
        tell_deleted(deletion, what=f"ingress for {exchange!r}", kept=deletion.check.kept)


def _document(found: "DeletionCheck") -> dict[str, Any]:
    return {
        "parts": [part_document(part) for part in found.parts],
        "kept": list(found.kept),
        "waiting": dict(found.uses.messages),
        "consumers": dict(found.uses.consumers),
        "obstacle": found.uses.obstacle,
        "cut_off": [part_document(binding) for binding in found.cut_off],
    }
