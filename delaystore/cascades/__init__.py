"""Delay cascades on a RabbitMQ broker: create, verify, bind destinations, read the status, delete."""

from delaystore.cascades._binding import BindingResult, bind
from delaystore.cascades._broker_client import BrokerClient
from delaystore.cascades._creation import Creation, PolicyOutcome, PolicyState, create
from delaystore.cascades._deletion import (
    STATISTICS_AGE,
    Deletion,
    DeletionCheck,
    MessagesWaitError,
    check_deletion,
    delete,
)
from delaystore.cascades._findings import Finding, FindingKind
from delaystore.cascades._status import CascadeStatus, read_status
from delaystore.cascades._verification import Verification, verify

__all__ = [
    "STATISTICS_AGE",
    "BindingResult",
    "BrokerClient",
    "CascadeStatus",
    "Creation",
    "Deletion",
    "DeletionCheck",
    "Finding",
    "FindingKind",
    "MessagesWaitError",
    "PolicyOutcome",
    "PolicyState",
    "Verification",
    "bind",
    "check_deletion",
    "create",
    "delete",
    "read_status",
    "verify",
]
