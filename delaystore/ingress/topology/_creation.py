"""Creating an ingress: everything is checked before anything is declared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from delaystore.cascades import BrokerClient, Finding, check_layout
from delaystore.errors import TransportSetupError
from delaystore.ingress.topology._findings import own_findings
from delaystore.ingress.topology._layout import IngressTopology
from delaystore.ingress.topology._words import words_of
from delaystore.transports.rabbitmq.declaring import declare_parts
from delaystore.transports.rabbitmq.topology.layout import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """What `create` did, or would do. `broker`: host, port and virtual host.

    `missing`: the parts that did not exist before; without a management API, bindings are left out: they are unknown.
    `declared`: how many parts were declared, including those that existed. `unchecked`: what could not be known, a
    sentence each.
    """

    broker: str
    version: str
    missing: Sequence[Part]
    declared: int
    unchecked: Sequence[str] = ()


class TopologyRefusedError(TransportSetupError):
    """What exists differs from what was to be declared, or the broker or the user cannot. Nothing was declared.

    `findings`: why, each by itself.
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{findings[0]}{more}; nothing was declared")

    def __reduce__(self) -> tuple[type["TopologyRefusedError"], tuple[Sequence[Finding]]]:
        return type(self), (self.findings,)


def create(
    broker: BrokerClient,
    topology: IngressTopology,
    *,
    entrance: bool = True,
    dry_run: bool = False,
    on_declared: Callable[[Part], object] = lambda _part: None,
) -> Creation:
    """Declare the ingress. May be run again: then nothing changes.

    `entrance` False: all but the exchange to publish to. `on_declared` is called after each part.
    An exchange that exists needs the right type; its arguments may be its own, so it is not declared again.
    Raises TopologyRefusedError, a TransportSetupError, where something hinders, and nothing is declared;
    DeclarationError, one as well, where the broker refuses a part all the same, saying what had been declared until
    then; TransportUnavailableError, TransportError.
    """
    layout, parts = topology.behind, topology.behind.parts
    if entrance:
        layout, parts = layout + topology.entrance, parts + topology.entrance.parts
    found = check_layout(broker, layout, ends=topology.ends, declaring=True, words=words_of(topology.names))
    hindrances = [finding for finding in own_findings(topology, found.findings) if finding.hinders]
    if hindrances:
        raise TopologyRefusedError(hindrances)
    parts = [part for part in parts if part in found.missing or part not in layout.exchanges]
    if not dry_run:
        declare_parts(broker.connections, parts, on_declared)
    return Creation(
        broker=broker.label,
        version=found.version,
        missing=found.missing,
        declared=0 if dry_run else len(parts),
        unchecked=found.unchecked,
    )
