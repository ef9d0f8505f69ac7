"""`delaystore delays`: create, verify, bind and delete cascades."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.cli._broker import (
    Cascade,
    DryRun,
    ask_whether_to_delete,
    deletion_document,
    finding_document,
    part_document,
    print_verification,
    say_obstacle,
    say_unchecked,
    tell_deleted,
    tell_planned,
    telling_what_is_deleted,
)
from delaystore.cli._commands import add_commands, command_group, require_command
from delaystore.cli._delays_moving import export, migrate, status, transfer
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, print_table, say, tell
from delaystore.errors import ConfigurationError
from delaystore.text import control_character, counted
from delaystore.transports.rabbitmq.topology import Binding, Exchange, Queue
from delaystore.transports.rabbitmq.topology.cascades import Routing

if TYPE_CHECKING:
    from delaystore.cascades import BindingResult, CascadeCreation, CascadeDeletion, CascadeDeletionCheck, PolicyOutcome


def bind(
    destinations: Annotated[list[str], typer.Argument(metavar="DESTINATION...", help="Queues, or their exchanges.")],
    routing: Annotated[
        Routing, typer.Option(help="direct: to the queue; conventional: to the exchange of the same name.")
    ] = Routing.DIRECT,
    dry_run: DryRun = False,
    *,
    on: Cascade,
    as_json: Json = False,
) -> None:
    """Bind destinations to a cascade's end.

    Each is bound so that it gets its own messages and no others. A failure is reported, and the rest are bound. With
    the management API, bindings of other programs that mix up messages are named. Exit code 1: a destination could not
    be bound. Exit code 2, and nothing is bound: a name with a control character, such as a line break.
    """
    from delaystore import cascades

    _check_names(destinations)
    with on.open_cascade() as (client, topology):
        results = cascades.bind(client, topology, destinations, routing, dry_run=dry_run)
    if as_json:
        _print_bindings_json(on.cascade, results, routing, dry_run)
    else:
        _print_bindings(results, dry_run)
    if any(result.failure is not None for result in results):
        raise typer.Exit(1)


def _check_names(destinations: Sequence[str]) -> None:
    bad = [destination for destination in destinations if control_character(destination) is not None]
    if bad:
        raise ConfigurationError(f"no destination may contain a control character: {', '.join(map(repr, bad))}")


def _print_bindings_json(cascade: str, results: "Sequence[BindingResult]", routing: Routing, dry_run: bool) -> None:
    documents = [
        {
            "destination": result.destination,
            "bound": result.failure is None and not dry_run,
            "failure": result.failure,
            "bindings": [part_document(binding) for binding in result.bindings],
            "collisions": None if result.collisions is None else [finding_document(one) for one in result.collisions],
        }
        for result in results
    ]
    print_document({"cascade": cascade, "routing": routing.value, "dry_run": dry_run, "results": documents})


def _print_bindings(results: "Sequence[BindingResult]", dry_run: bool) -> None:
    done = "would be bound" if dry_run else "bound"
    rows = [
        (result.destination, done if result.failure is None else "failed", result.failure or "") for result in results
    ]
    print_table(("destination", "result", "why"), rows, unbroken=("result",))
    for result in results:
        for finding in result.collisions or ():
            say(f"caution: {finding}")
    if any(result.collisions is None for result in results):
        say("not checked: bindings of other programs that mix up messages; only the management API lists them")


def delete(
    force: Annotated[
        bool, typer.Option("--force", help="Delete although messages wait, or may wait: they are lost.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
    dry_run: DryRun = False,
    *,
    on: Cascade,
    as_json: Json = False,
) -> None:
    """Delete a cascade, and delaystore's policies for it. The destinations' queues and exchanges stay.

    Needs the management API, which alone counts every message, and refuses while any waits. It checks twice, six
    seconds apart, since the broker's counts can be that old. Exit code 1: messages wait, and nothing was deleted.
    """
    from delaystore import cascades

    with on.open_cascade() as (client, topology):
        found = cascades.check_deletion(client, topology)
        refused = not force and found.uses.certain is not None
        if dry_run or (refused and found.uses.messages):
            _print_check(found, on.cascade, dry_run, as_json)
            raise typer.Exit(1 if refused else 0)
        if refused:
            raise cascades.TopologyInUseError(found.uses, cascades.CASCADE)
        _confirm(found, f"{on.cascade} on {client.label}", yes)
        if yes:
            _say_cut_off(found)
        if found.queues and not force:
            say(f"checking again in {cascades.STATISTICS_AGE:g} s: the broker's counts may be that old")
        deleted: list[Exchange | Queue] = []
        try:
            with telling_what_is_deleted(deleted):
                deletion = cascades.delete(client, topology, force=force, on_deleted=deleted.append)
        except cascades.TopologyInUseError as error:
            _print_check(replace(found, uses=error.uses), on.cascade, dry_run, as_json)
            say(str(error))
            raise typer.Exit(1) from None
    _print_deletion(deletion, on.cascade, as_json)


def _confirm(found: "CascadeDeletionCheck", what: str, yes: bool) -> None:
    if yes or not found.parts:
        return
    bound = f", from which {counted(len(found.cut_off), 'destination')} get messages" if found.cut_off else ""
    count = _messages(found)
    waiting = f" with {counted(count, 'message')}" if count else ""
    ask_whether_to_delete(f"Delete {what}{waiting}{bound}?")


def _say_cut_off(found: "CascadeDeletionCheck") -> None:
    for binding in found.cut_off:
        say(f"caution: {binding.kind} {binding.destination!r} gets no messages from it any more")


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


def verify(
    passive: Annotated[
        bool, typer.Option("--passive", help="This user may not declare: leave its permissions out.")
    ] = False,
    *,
    on: Cascade,
    as_json: Json = False,
) -> None:
    """Verify that a broker has a cascade as it should be. Changes nothing.

    Names what is wrong with the broker's version and feature flags, the user's permissions, and each part of the
    cascade, and destinations that get messages for others. Names what could not be checked, too: that is more without
    the management API. Exit code 1: something is wrong.
    """
    from delaystore import cascades

    with on.open_cascade() as (client, topology):
        found = cascades.verify(client, topology, passive=passive)
    print_verification(found, on.cascade, {"cascade": on.cascade}, as_json=as_json)
    if not found.good:
        raise typer.Exit(1)


def create(
    passive: Annotated[
        bool, typer.Option("--passive", help="This user may not declare: only verify that everything exists.")
    ] = False,
    dry_run: DryRun = False,
    *,
    on: Cascade,
    as_json: Json = False,
) -> None:
    """Declare a cascade: its exchanges, queues and bindings. May be run again.

    Checks everything first, and changes nothing where a check fails. For cascades shared with NServiceBus or Celery, a
    policy catches messages without a destination. On RabbitMQ 4 another lifts the delivery limit of quorum queues, so
    that reading waiting messages never forwards them early. Without the management API, the commands that set them are
    printed. Exit code 1: a policy could not be set; with --passive: something is missing.
    """
    from delaystore import cascades
    from delaystore.transports.rabbitmq.declaring import declared_until_then

    if passive:
        verify(passive=True, on=on, as_json=as_json)
        return
    declared: list[Exchange | Queue | Binding] = []
    with on.open_cascade() as (client, topology):
        try:
            creation = cascades.create(client, topology, dry_run=dry_run, on_declared=declared.append)
        except KeyboardInterrupt:
            say(declared_until_then(declared))
            raise
    if as_json:
        _print_creation_json(on.cascade, creation, dry_run)
    else:
        _print_creation(on.cascade, creation, dry_run)
    states = (creation.policy.state, creation.limit_policy.state)
    if cascades.PolicyState.NOT_SET in states and on.management:
        raise typer.Exit(1)


def _print_creation_json(cascade: str, creation: "CascadeCreation", dry_run: bool) -> None:
    print_document(
        {
            "cascade": cascade,
            "broker": creation.broker,
            "version": creation.version,
            "dry_run": dry_run,
            "missing": [part_document(part) for part in creation.missing],
            "declared": creation.declared,
            "policy": _policy_document(creation.policy),
            "limit_policy": _policy_document(creation.limit_policy),
            "unchecked": list(creation.unchecked),
        }
    )


def _policy_document(policy: "PolicyOutcome") -> dict[str, str | None]:
    return {
        "state": policy.state.value,
        "name": policy.name,
        "command": policy.command,
        "advice": policy.advice,
    }


def _print_creation(cascade: str, creation: "CascadeCreation", dry_run: bool) -> None:
    if dry_run:
        for part in creation.missing:
            tell(f"would declare: {part}")
    state = "would be ready" if dry_run else "ready"
    new = counted(len(creation.missing), "part")
    tell(f"{state}: {cascade} on {creation.broker} (RabbitMQ {creation.version}); {new} new")
    for policy in (creation.limit_policy, creation.policy):
        _print_policy(policy, dry_run)
    say_unchecked(creation.unchecked)


def _print_policy(policy: "PolicyOutcome", dry_run: bool) -> None:
    match policy.state.value:
        case "set":
            tell(f"{'would set' if dry_run else 'set'}: policy {policy.name!r}")
        case "not-set":
            say(f"not set: policy {policy.name!r}: {policy.advice}")
    if policy.command is not None:
        say("to set it, run:")
        tell(policy.command)


def delays(context: typer.Context) -> None:
    """Create, verify and empty cascades, RabbitMQ's native delays.

    Options are environment variables as well: DELAYSTORE_BROKER, DELAYSTORE_CASCADE, DELAYSTORE_MANAGEMENT.
    """
    require_command(context)


delays_app = command_group(delays)
add_commands(
    delays_app,
    {
        "create": create,
        "verify": verify,
        "delete": delete,
        "bind": bind,
        "export": export,
        "migrate": migrate,
        "transfer": transfer,
        "status": status,
    },
    "delays",
)


__all__: list[str] = []
