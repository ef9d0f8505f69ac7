"""Cascades as values: exchanges, queues and bindings, and a message's way through them. Needs no pika."""

from delaystore.transports.rabbitmq.topology.cascades import (
    NSERVICEBUS_V1,
    NSERVICEBUS_V2,
    SKIPPING,
    CascadeTopology,
    Routing,
    SkippingCascade,
    WalkingCascade,
    celery,
    custom,
    topology_named,
)
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Queue, matches

__all__ = [
    "NSERVICEBUS_V1",
    "NSERVICEBUS_V2",
    "SKIPPING",
    "Binding",
    "CascadeTopology",
    "DestinationKind",
    "Exchange",
    "Layout",
    "Queue",
    "Routing",
    "SkippingCascade",
    "WalkingCascade",
    "celery",
    "custom",
    "matches",
    "topology_named",
]
