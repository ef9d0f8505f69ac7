"""Delay cascades on a RabbitMQ broker: create, verify, bind destinations, read the status, delete.

What any declared topology needs of a broker is here as well: a client, a snapshot of a virtual host, findings, and the
steps of creating and deleting.
"""

from delaystore.cascades._binding import BindingResult, bind
from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._check import LayoutCheck, check_layout
from delaystore.cascades._creation import CascadeCreation, PolicyOutcome, PolicyState, create
from delaystore.cascades._definitions import Definitions
from delaystore.cascades._deletion import CascadeDeletion, CascadeDeletionCheck, check_deletion, delete
from delaystore.cascades._differences import missing_parts
from delaystore.cascades._findings import Finding, FindingKind
from delaystore.cascades._management import Management
from delaystore.cascades._snapshot import ExchangeState, Policy, QueueState, Snapshot
from delaystore.cascades._status import CascadeStatus, read_status
from delaystore.cascades._verification import verify
from delaystore.cascades._words import CASCADE, LayoutWords
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

__all__ = [
    "CASCADE",
    "STATISTICS_AGE",
    "BindingResult",
    "BrokerClient",
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
    "Snapshot",
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
