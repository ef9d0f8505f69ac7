"""`delaystore cascade`: create, verify, bind and delete cascades."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.cli._broker import (
    Deleting,
    OfferedCascade,
    Passive,
    creation_document,
    finding_document,
    part_document,
    print_verification,
    say_unchecked,
    saying_what_is_declared,
)
from delaystore.cli._cascade_moving import export, migrate, status, transfer
from delaystore.cli._commands import add_commands, plain_group
from delaystore.cli._options import DryRunOption, JsonOption
from delaystore.cli._output import print_document, print_line, print_note, print_table
from delaystore.errors import ConfigurationError
from delaystore.text import control_character, counted
from delaystore.transports.rabbitmq.topology.cascades import Routing

if TYPE_CHECKING:
    from delaystore.cascades import BindingResult, CascadeCreation, PolicyOutcome


def bind(
    destinations: Annotated[list[str], typer.Argument(metavar="DESTINATION", help="Queues, or their exchanges.")],
    routing: Annotated[
        Routing,
        typer.Option(
            help="Binding of a destination. direct: to the queue; conventional: to the exchange of the same name."
        ),
    ] = Routing.DIRECT,
    dry_run: DryRunOption = False,
    *,
    on: OfferedCascade,
    as_json: JsonOption = False,
) -> None:
    """Bind destinations to a cascade.

    Each destination gets its own messages and no others. If one cannot be bound, the command reports the failure and
    binds the rest. With the management API it names bindings of other programs that mix up messages. If a name has a
    control character such as a line break, no destination is bound.
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
            print_note(f"caution: {finding}")
    if any(result.collisions is None for result in results):
        print_note("not checked: bindings of other programs that mix up messages; only the management API lists them")


def delete(
    *,
    options: Deleting,
    on: OfferedCascade,
    as_json: JsonOption = False,
) -> None:
    """Delete a cascade and its policies.

    The queues and exchanges of destinations stay. The command needs the management API, which counts all messages, and
    refuses while messages wait in the cascade. It checks twice, six seconds apart, because the broker's counts can be
    that old.
    """
    from delaystore import cascades

    with on.open_cascade() as (client, topology):
        options.delete(
            client,
            {"cascade": on.cascade},
            cascades.CASCADE,
            lambda: cascades.check_deletion(client, topology),
            lambda on_deleted: cascades.delete(client, topology, force=options.force, on_deleted=on_deleted),
            as_json=as_json,
        )


def verify(
    passive: Passive = False,
    *,
    on: OfferedCascade,
    as_json: JsonOption = False,
) -> None:
    """Check the parts of a cascade on a broker.

    The report names defects of the broker's version and feature flags, the user's permissions, and each part of the
    cascade. It names destinations that get messages of others. It also names parts that could not be checked; without
    the management API there are more. Verify changes nothing.
    """
    from delaystore import cascades

    with on.open_cascade() as (client, topology):
        found = cascades.verify(client, topology, passive=passive)
    print_verification(found, on.cascade, {"cascade": on.cascade}, as_json=as_json)


def create(
    passive: Annotated[
        bool,
        typer.Option(
            "--passive", help="Declare nothing, for a user without that permission; only check that all parts exist."
        ),
    ] = False,
    dry_run: DryRunOption = False,
    *,
    on: OfferedCascade,
    as_json: JsonOption = False,
) -> None:
    """Create a cascade's exchanges, queues and bindings.

    The command checks everything first. If a check fails, it changes nothing. You can run it again. For cascades shared
    with NServiceBus or Celery, a policy catches messages without a destination. On RabbitMQ 4 a second policy removes
    the delivery limit of quorum queues, and reading waiting messages never forwards them early. Without the management
    API, the command prints the commands that set the policies.
    """
    from delaystore import cascades

    if passive:
        verify(passive=True, on=on, as_json=as_json)
        return
    with on.open_cascade() as (client, topology), saying_what_is_declared() as on_declared:
        creation = cascades.create(client, topology, dry_run=dry_run, on_declared=on_declared)
    if as_json:
        policies = {"policy": asdict(creation.policy), "limit_policy": asdict(creation.limit_policy)}
        print_document({"cascade": on.cascade, **creation_document(creation, dry_run=dry_run), **policies})
    else:
        _print_creation(on.cascade, creation, dry_run)
    states = (creation.policy.state, creation.limit_policy.state)
    if cascades.PolicyState.NOT_SET in states and on.management:
        raise typer.Exit(1)


def _print_creation(cascade: str, creation: "CascadeCreation", dry_run: bool) -> None:
    if dry_run:
        for part in creation.missing:
            print_line(f"would declare: {part}")
    state = "would be ready" if dry_run else "ready"
    new = counted(len(creation.missing), "part")
    print_line(f"{state}: {cascade} on {creation.broker} (RabbitMQ {creation.version}); {new} new")
    for policy in (creation.limit_policy, creation.policy):
        _print_policy(policy, dry_run)
    say_unchecked(creation.unchecked)


def _print_policy(policy: "PolicyOutcome", dry_run: bool) -> None:
    match policy.state.value:
        case "set":
            print_line(f"{'would set' if dry_run else 'set'}: policy {policy.name!r}")
        case "not-set":
            print_note(f"not set: policy {policy.name!r}: {policy.advice}")
    if policy.command is not None:
        print_note("to set it, run:")
        print_line(policy.command)


cascade_app = plain_group(
    """Manage cascades, RabbitMQ's native delay queues.

    A cascade is a chain of exchanges and queues that delays messages inside RabbitMQ.
    """
)
add_commands(
    cascade_app,
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
)


__all__: list[str] = []
