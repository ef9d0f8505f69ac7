"""`delaystore delays delete`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.amounts import counted
from delaystore.cli._broker_options import BrokerUrl, DryRun, ManagementUrl
from delaystore.cli._broker_reports import part_document
from delaystore.cli._delays.options import DEFAULT_CASCADE, CascadeName, open_cascade
from delaystore.cli._deletion import (
    ask_whether_to_delete,
    deletion_document,
    say_obstacle,
    tell_deleted,
    tell_planned,
    telling_what_is_deleted,
)
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, print_table, say
from delaystore.transports.rabbitmq.topology import Exchange, Queue

if TYPE_CHECKING:
    from delaystore.cascades import CascadeDeletion, CascadeDeletionCheck


def delete(
    force: Annotated[
        bool, typer.Option("--force", help="Delete although messages wait, or may: they are lost.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    broker: BrokerUrl = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Delete a cascade, and delaystore's policies for it. The destinations' queues and exchanges stay.

    Needs the management API, which alone counts every message, and refuses while any waits. It checks twice, six
    seconds apart, since the broker's counts can be that old. Exit code 1: messages wait, and nothing was deleted.
    """
    from delaystore import cascades

    with open_cascade(broker, cascade, management) as (client, topology):
        found = cascades.check_deletion(client, topology)
        refused = not force and found.uses.certain is not None
        if dry_run or (refused and found.uses.messages):
            _print_check(found, cascade, dry_run, as_json)
            raise typer.Exit(1 if refused else 0)
        if refused:
            raise cascades.TopologyInUseError(found.uses, cascades.CASCADE)
        _confirm(found, f"{cascade} on {client.label}", yes)
        if yes:
            _say_cut_off(found)
        if found.queues and not force:
            say(f"checking again in {cascades.STATISTICS_AGE:g} s: the broker's counts may be that old")
        deleted: list[Exchange | Queue] = []
        try:
            with telling_what_is_deleted(deleted):
                deletion = cascades.delete(client, topology, force=force, on_deleted=deleted.append)
        except cascades.TopologyInUseError as error:
            _print_check(replace(found, uses=error.uses), cascade, dry_run, as_json)
            say(str(error))
            raise typer.Exit(1) from None
    _print_deletion(deletion, cascade, as_json)


def _confirm(found: "CascadeDeletionCheck", what: str, yes: bool) -> None:
    if yes or not found.parts:
        return
    bound = f", from which {counted(len(found.cut_off), 'destination')} get messages" if found.cut_off else ""
    count = _messages(found)
    waiting = f" with {counted(count, 'message')}" if count else ""
    ask_whether_to_delete(f"Delete {what}{waiting}{bound}?")


def _say_cut_off(found: "CascadeDeletionCheck") -> None:
    for binding in found.cut_off:
        say(f"caution: {binding.kind} {binding.destination!r} gets no messages from it any more, whoever bound it")


def _print_check(found: "CascadeDeletionCheck", cascade: str, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_document({"cascade": cascade, "dry_run": dry_run, "deleted": [], **_document(found)})
        return
    if dry_run:
        tell_planned([*found.parts, *_policies(found.policy, found.limit_policy)])
        _say_cut_off(found)
    if found.uses.messages:
        rows = [(name, f"{count:,}") for name, count in found.uses.messages.items()]
        print_table(("queue", "messages"), rows, right=("messages",))
    say_obstacle(found.uses.obstacle)


def _print_deletion(deletion: "CascadeDeletion", cascade: str, as_json: bool) -> None:
    if as_json:
        print_document(
            {
                "cascade": cascade,
                **deletion_document(deletion),
                "deleted_policy": deletion.policy,
                "deleted_limit_policy": deletion.limit_policy,
                **_document(deletion.check),
            }
        )
    else:
        tell_deleted(deletion, *_policies(deletion.policy, deletion.limit_policy), what=cascade)


def _messages(found: "CascadeDeletionCheck") -> int:
    """How many messages are known to wait."""
    return sum(found.uses.messages.values())


def _policies(*names: str | None) -> Sequence[str]:
    return [f"policy {name!r}" for name in names if name is not None]


def _document(found: "CascadeDeletionCheck") -> dict[str, Any]:
    return {
        "parts": [part_document(part) for part in found.parts],
        "waiting": dict(found.uses.counts),
        "messages": _messages(found),
        "obstacle": found.uses.obstacle,
        "destinations": [part_document(binding) for binding in found.cut_off],
        "policy": found.policy,
        "limit_policy": found.limit_policy,
    }
