"""RabbitMQ's native delay cascades as an operator sees them: create, verify, bind, empty, delete.

A layout is data; the broker is read as a snapshot and compared with it. `moving` copies waiting messages, confirmed.
May be changed freely: everything but the layouts, which other programs' cascades share.
May import: the ground, `transports`.
"""

from delaystore.cascades.administration import (
    CascadeCreation,
    CascadeDeletion,
    CascadeDeletionCheck,
    PolicyOutcome,
    PolicyState,
    check_deletion,
    create,
    delete,
    verify,
)
from delaystore.cascades.binding import BindingResult, bind
from delaystore.cascades.checking import LayoutCheck, check_layout
from delaystore.cascades.declared import (
    STATISTICS_AGE,
    Creation,
    CreationPlan,
    DeclaredTopology,
    Deletion,
    DeletionCheck,
    TopologyInUseError,
    TopologyRefusedError,
    Uses,
    Verification,
    delete_topology,
    uses_of,
)
from delaystore.cascades.findings import CASCADE, Finding, FindingKind, LayoutWords, missing_parts
from delaystore.cascades.management import BrokerClient, Definitions, Management
from delaystore.cascades.snapshot import BrokerSnapshot, ExchangeState, Policy, QueueState
from delaystore.cascades.status import CascadeStatus, read_status

__all__ = [
    "CASCADE",
    "STATISTICS_AGE",
    "BindingResult",
    "BrokerClient",
    "BrokerSnapshot",
    "CascadeCreation",
    "CascadeDeletion",
    "CascadeDeletionCheck",
    "CascadeStatus",
    "Creation",
    "CreationPlan",
    "DeclaredTopology",
    "Definitions",
    "Deletion",
    "DeletionCheck",
    "ExchangeState",
    "Finding",
    "FindingKind",
    "LayoutCheck",
    "LayoutWords",
    "Management",
    "Policy",
    "PolicyOutcome",
    "PolicyState",
    "QueueState",
    "TopologyInUseError",
    "TopologyRefusedError",
    "Uses",
    "Verification",
    "bind",
    "check_deletion",
    "check_layout",
    "create",
    "delete",
    "delete_topology",
    "missing_parts",
    "read_status",
    "uses_of",
    "verify",
]
