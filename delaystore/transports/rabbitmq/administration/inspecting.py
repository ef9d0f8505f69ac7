"""What there is to know of a layout on a broker, by whatever way there is."""

from collections.abc import Collection
from dataclasses import dataclass

from delaystore.transports.rabbitmq.administration.broker import Administered
from delaystore.transports.rabbitmq.administration.comparing import Holdings, compare, missing, missing_parts
from delaystore.transports.rabbitmq.administration.declaring import Part
from delaystore.transports.rabbitmq.administration.findings import Finding, FindingKind
from delaystore.transports.rabbitmq.administration.probing import probe_declaring, probe_existence
from delaystore.transports.rabbitmq.administration.requirements import check_broker, check_permissions, flags_needed
from delaystore.transports.rabbitmq.management import Management
from delaystore.transports.rabbitmq.topology.layout import Layout


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found out; nothing was changed.

    `holdings`: None where there is no management API. `missing`: in the order in which it can be declared; bindings
    are only listed where there are `holdings`. `unchecked`: what could not be known, a sentence each.
    """

    version: str
    holdings: Holdings | None
    missing: tuple[Part, ...]
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]


def inspect(broker: Administered, layout: Layout, *, ends: Collection[str], declaring: bool) -> Inspection:
    """Compare `layout` with the broker. `ends`: exchanges whose other bindings are the destinations'.

    `declaring`: also whether the user could declare it. Raises TransportUnavailableError, TransportError.
    """
    version = broker.version()
    if broker.management is None:
        return _by_amqp(broker, layout, version, declaring)
    return _by_management(broker, broker.management, layout, version, ends, declaring)


def read_holdings(management: Management) -> Holdings:
    """What the virtual host holds."""
    return Holdings(
        management.exchanges(), management.queues(), frozenset(management.bindings()), tuple(management.policies())
    )


def _by_management(
    broker: Administered,
    management: Management,
    layout: Layout,
    version: str,
    ends: Collection[str],
    declaring: bool,
) -> Inspection:
    broker.check_same_cluster()
    flags = management.feature_flags()
    holdings = read_holdings(management)
    absent = tuple(missing_parts(layout, holdings))
    findings = [*check_broker(version, flags, layout)]
    if declaring:
        findings += _permissions(broker, management, layout, absent)
    findings += compare(layout, holdings, ends)
    unchecked = () if flags is not None else _unknown_flags(layout, "only an administrator may see them")
    return Inspection(version, holdings, absent, tuple(findings), unchecked)


def _permissions(
    broker: Administered, management: Management, layout: Layout, absent: tuple[Part, ...]
) -> list[Finding]:
    granted = management.permissions()
    if granted is not None:
        return check_permissions(granted, layout)
    probed = probe_declaring(broker.connections, layout, absent)
    return [finding for finding in probed if finding.kind is FindingKind.PERMISSION]  # the rest is compared better


def _by_amqp(broker: Administered, layout: Layout, version: str, declaring: bool) -> Inspection:
    absent = probe_existence(broker.connections, layout)
    findings = [*check_broker(version, None, layout)]
    if declaring:
        findings += probe_declaring(broker.connections, layout, absent)
    findings += (missing(part) for part in absent)
    unchecked = [
        *_unknown_flags(layout, "the management API shows them"),
        "which bindings there are, too many or too few: only the management API lists them",
        "whether destinations get messages for others: only the management API lists their bindings",
    ]
    if not declaring:
        unchecked.insert(0, "types and arguments: a passive declaration looks at names alone")
    return Inspection(version, None, tuple(absent), tuple(findings), tuple(unchecked))


def _unknown_flags(layout: Layout, why: str) -> tuple[str, ...]:
    needed = flags_needed(layout)
    return (f"whether feature flags are enabled ({', '.join(needed)}): {why}",) if needed else ()
