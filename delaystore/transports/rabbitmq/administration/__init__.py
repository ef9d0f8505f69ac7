"""Creating, checking and deleting delay cascades on a broker, and binding destinations to them."""

from delaystore.transports.rabbitmq.administration.binding import BindingResult, bind
from delaystore.transports.rabbitmq.administration.broker import Administered
from delaystore.transports.rabbitmq.administration.creating import Creation, PolicyOutcome, PolicyState, create
from delaystore.transports.rabbitmq.administration.declaring import DeclarationError, ensure_bound, ensure_declared
from delaystore.transports.rabbitmq.administration.deleting import (
    STATISTICS_AGE,
    Deletion,
    MessagesWaitError,
    Survey,
    delete,
    survey,
)
from delaystore.transports.rabbitmq.administration.findings import Finding, FindingKind, Verification
from delaystore.transports.rabbitmq.administration.verifying import verify

__all__ = [
    "STATISTICS_AGE",
    "Administered",
    "BindingResult",
    "Creation",
    "DeclarationError",
    "Deletion",
    "Finding",
    "FindingKind",
    "MessagesWaitError",
    "PolicyOutcome",
    "PolicyState",
    "Survey",
    "Verification",
    "bind",
    "create",
    "delete",
    "ensure_bound",
    "ensure_declared",
    "survey",
    "verify",
]
