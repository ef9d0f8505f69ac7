"""Delay cascades on a RabbitMQ broker: create, verify, bind destinations, read the status, delete.

What any layout needs of a broker is here as well: a client, a snapshot of a virtual host, findings.
"""

from delaystore.cascades._binding import BindingResult, bind
from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._check import LayoutCheck, check_layout
from delaystore.cascades._creation import Creation, PolicyOutcome, PolicyState, create
from delaystore.cascades._definitions import Definitions
from delaystore.cascades._deletion import (
    STATISTICS_AGE,
    Deletion,
    DeletionCheck,
    MessagesWaitError,
    check_deletion,
    delete,
)
from delaystore.cascades._differences import missing_parts
from delaystore.cascades._findings import Finding, FindingKind
from delaystore.cascades._management import Management
from delaystore.cascades._snapshot import ExchangeState, Policy, QueueState, Snapshot
from delaystore.cascades._status import CascadeStatus, read_status
from delaystore.cascades._verification import Verification, verify
from delaystore.cascades._words import LayoutWords

__all__ = [
    "STATISTICS_AGE",
    "BindingResult",
    "BrokerClient",
    "CascadeStatus",
    "Creation",
    "Definitions",
    "Deletion",
    "DeletionCheck",
    "ExchangeState",
    "Finding",
    "FindingKind",
    "LayoutCheck",
    "LayoutWords",
    "Management",
    "MessagesWaitError",
    "Policy",
    "PolicyOutcome",
    "PolicyState",
    "QueueState",
    "Snapshot",
    "Verification",
    "bind",
    "check_deletion",
    "check_layout",
    "create",
    "delete",
    "missing_parts",
    "read_status",
    "verify",
]
