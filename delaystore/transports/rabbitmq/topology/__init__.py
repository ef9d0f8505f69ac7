"""Cascades as values: exchanges, queues and bindings, and a message's way through them. Needs no pika."""

from delaystore.transports.rabbitmq.topology._presets import (
    NSERVICEBUS_V1,
    NSERVICEBUS_V2,
    SKIPPING,
    celery,
    custom,
    topology_named,
)
from delaystore.transports.rabbitmq.topology._skipping import SkippingCascade
from delaystore.transports.rabbitmq.topology._walking import WalkingCascade
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology, Routing
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
