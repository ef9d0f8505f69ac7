"""`delaystore ingest create`."""

from typing import TYPE_CHECKING

from delaystore.amounts import counted
from delaystore.cli._broker_options import BrokerUrl, DryRun, ManagementUrl
from delaystore.cli._broker_reports import finding_document, part_document, say_unchecked
from delaystore.cli._ingest.options import EntranceType, Exchange, Out, OutType, Queue, open_broker
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, say, tell
from delaystore.errors import ConfigurationError, TransportSetupError
from delaystore.transports.rabbitmq.topology.layout import Part

if TYPE_CHECKING:
    from delaystore.ingress.topology import Creation, IngressTopology, TopologyRefusedError


def create(
    exchange: Exchange,
    out_type: OutType = None,
    exchange_type: EntranceType = None,
    out: Out = None,
    queue: Queue = None,
    dry_run: DryRun = False,
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Declare what an ingress needs: E, the ingress queue, and OUT. May be run again.

    Programs publish to E, with a delay in a header. The ingress queue gets all of it. What is due is published to OUT,
    with the same routing key: bind your queues there. Checks everything first. Exit code 2: something differs, each
    difference is named, and nothing was changed.
    """
    from delaystore.ingress import topology as ingress
    from delaystore.transports.rabbitmq.declaring import declared_until_then

    topology = _topology(exchange, out_type, exchange_type, out, queue)
    declared: list[Part] = []
    with open_broker(broker, management) as client:
        try:
            creation = ingress.create(client, topology, dry_run=dry_run, on_declared=declared.append)
        except ingress.TopologyRefusedError as error:
            raise _told(error, dry_run, as_json) from None
        except KeyboardInterrupt:
            say(declared_until_then(declared))
            raise
    if as_json:
        _print_json(topology, creation, dry_run)
    else:
        _print_text(topology, creation, dry_run)


def _topology(
    exchange: str, out_type: OutType, exchange_type: EntranceType, out: str | None, queue: str | None
) -> "IngressTopology":
    from delaystore.ingress.topology import IngressNames, IngressTopology, entrance_type_for

    if out_type is None:
        raise ConfigurationError("which type do the bindings of your queues need? pass --type TYPE")
    return IngressTopology(
        names=IngressNames.of(exchange, queue=queue, out=out),
        out_type=out_type.value,
        entrance_type=entrance_type_for(out_type) if exchange_type is None else exchange_type.value,
    )


def _told(error: "TopologyRefusedError", dry_run: bool, as_json: bool) -> TransportSetupError:
    """What remains to be said once each finding is told."""
    if as_json:
        findings = [finding_document(finding) for finding in error.findings]
        print_document({"dry_run": dry_run, "declared": 0, "findings": findings})
    elif len(error.findings) > 1:
        for finding in error.findings:
            say(f"{finding.kind}: {finding}")
        return TransportSetupError(f"{len(error.findings)} hindrances; nothing was declared")
    return error


def _print_json(topology: "IngressTopology", creation: "Creation", dry_run: bool) -> None:
    print_document(
        {
            "exchange": topology.names.exchange,
            "queue": topology.names.queue,
            "out": topology.names.out,
            "broker": creation.broker,
            "version": creation.version,
            "dry_run": dry_run,
            "missing": [part_document(part) for part in creation.missing],
            "declared": creation.declared,
            "unchecked": list(creation.unchecked),
        }
    )


def _print_text(topology: "IngressTopology", creation: "Creation", dry_run: bool) -> None:
    for part in creation.missing:
        tell(f"{'would declare' if dry_run else 'declared'}: {part}")
    names = topology.names
    state = "would be ready" if dry_run else "ready"
    new = counted(len(creation.missing), "new part") if creation.missing else "nothing is new"
    tell(f"{state}: {names.exchange!r} on {creation.broker} (RabbitMQ {creation.version}); {new}")
    say_unchecked(creation.unchecked)
