"""Whether a broker holds a cascade as it should be."""

from delaystore.transports.rabbitmq.administration.broker import Administered
from delaystore.transports.rabbitmq.administration.collisions import collisions
from delaystore.transports.rabbitmq.administration.comparing import Holdings, compare
from delaystore.transports.rabbitmq.administration.findings import Finding, Verification
from delaystore.transports.rabbitmq.administration.inspecting import inspect
from delaystore.transports.rabbitmq.administration.policies import (
    alternate_exchange,
    check_policy,
    needs_policy,
    undeliverable_layout,
    undeliverable_name,
)
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology


def verify(broker: Administered, topology: CascadeTopology, *, passive: bool = False) -> Verification:
    """Compare the cascade with the broker: version, feature flags, permissions, and every part of it.

    By the management API where there is one, otherwise as far as AMQP goes; nothing is changed either way.
    `passive`: the user may not declare, so nothing is asked that takes more than passive declarations.
    Raises TransportUnavailableError, TransportError where the broker does not answer.
    """
    found = inspect(broker, topology.layout(), ends={topology.delivery}, declaring=not passive)
    findings, unchecked = list(found.findings), list(found.unchecked)
    if found.holdings is not None:
        findings += check_ends(broker, topology, found.holdings)
    elif needs_policy(topology):
        unchecked.append("whether what has no destination is caught: only the management API shows policies")
    return Verification(
        broker=broker.broker.label, version=found.version, findings=tuple(findings), unchecked=tuple(unchecked)
    )


def check_ends(broker: Administered, topology: CascadeTopology, holdings: Holdings) -> list[Finding]:
    """What is wrong behind the delivery exchange: what has no destination, and destinations that disturb each other."""
    virtual_host = broker.broker.parameters().virtual_host
    findings = check_policy(topology, holdings, virtual_host)
    if not findings and alternate_exchange(topology, holdings) == undeliverable_name(topology):
        own = undeliverable_layout(topology)
        findings = compare(own, holdings, ends={exchange.name for exchange in own.exchanges})
    return [*findings, *collisions(topology, holdings.bindings)]
