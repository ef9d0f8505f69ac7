"""Letting RabbitMQ itself keep a message until it is due."""

from delaystore.transports.rabbitmq.native.abc import NativeDelay
from delaystore.transports.rabbitmq.native.cascade import CascadeDelay
from delaystore.transports.rabbitmq.native.ephemeral import EphemeralQueueDelay
from delaystore.transports.rabbitmq.native.fixed import FixedDelay
from delaystore.transports.rabbitmq.native.plugin import DelayedMessagePluginDelay

__all__ = ["CascadeDelay", "DelayedMessagePluginDelay", "EphemeralQueueDelay", "FixedDelay", "NativeDelay"]
