"""`delaystore delays create`."""

from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.amounts import counted
from delaystore.cli._broker_options import BrokerUrl, DryRun, ManagementUrl
from delaystore.cli._broker_reports import part_document, say_unchecked
from delaystore.cli._delays.options import DEFAULT_CASCADE, CascadeName, open_cascade
from delaystore.cli._delays.verify import verify
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, say, tell
from delaystore.transports.rabbitmq.topology import Binding, Exchange, Queue

if TYPE_CHECKING:
    from delaystore.cascades import CascadeCreation, PolicyOutcome


def create(
    passive: Annotated[
        bool, typer.Option("--passive", help="This user may not declare: only verify that everything exists.")
    ] = False,
    dry_run: DryRun = False,
    broker: BrokerUrl = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Declare a cascade: its exchanges, queues and bindings. May be run again.

    Checks everything first, and changes nothing where a check fails. For cascades shared with NServiceBus or Celery, a
    policy catches messages without a destination. On RabbitMQ 4 another lifts the delivery limit of quorum queues, so
    that reading what waits never sends it on early. Without the management API, the commands that set them are printed.
    Exit code 1: a policy could not be set; with --passive: something is missing.
    """
    from delaystore import cascades
    from delaystore.transports.rabbitmq.declaring import declared_until_then

    if passive:
        verify(passive=True, broker=broker, cascade=cascade, management=management, as_json=as_json)
        return
    declared: list[Exchange | Queue | Binding] = []
    with open_cascade(broker, cascade, management) as (client, topology):
        try:
            creation = cascades.create(client, topology, dry_run=dry_run, on_declared=declared.append)
        except KeyboardInterrupt:
            say(declared_until_then(declared))
            raise
    if as_json:
        _print_json(cascade, creation, dry_run)
    else:
        _print_text(cascade, creation, dry_run)
    states = (creation.policy.state, creation.limit_policy.state)
    if cascades.PolicyState.NOT_SET in states and management:
        raise typer.Exit(1)


def _print_json(cascade: str, creation: "CascadeCreation", dry_run: bool) -> None:
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


def _print_text(cascade: str, creation: "CascadeCreation", dry_run: bool) -> None:
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
