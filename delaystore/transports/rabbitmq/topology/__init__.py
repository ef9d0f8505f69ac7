"""Delay layouts as values: exchanges, queues and bindings, and the way a message takes through them. No pika."""

from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology, Routing
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Queue
from delaystore.transports.rabbitmq.topology.presets import (
    NSERVICEBUS_V1,
    NSERVICEBUS_V2,
    SKIPPING,
    celery,
    custom,
    topology_named,
)
from delaystore.transports.rabbitmq.topology.skipping import SkippingCascade
from delaystore.transports.rabbitmq.topology.topic import matches
from delaystore.transports.rabbitmq.topology.walking import WalkingCascade

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
