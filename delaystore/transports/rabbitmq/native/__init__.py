"""Letting RabbitMQ itself keep a message until it is due."""

from datetime import timedelta

from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.native._abc import NativeDelay
from delaystore.transports.rabbitmq.native._cascade import CascadeDelay
from delaystore.transports.rabbitmq.native._ephemeral import EphemeralQueueDelay
from delaystore.transports.rabbitmq.native._fixed import FixedDelay
from delaystore.transports.rabbitmq.native._plugin import DelayedMessagePluginDelay
from delaystore.transports.rabbitmq.topology import topology_named

__all__ = [
    "CascadeDelay",
    "DelayedMessagePluginDelay",
    "EphemeralQueueDelay",
    "FixedDelay",
    "NativeDelay",
    "delay_named",
]


def delay_named(name: str) -> NativeDelay:
    """A cascade by its name (see `topology_named`), or `plugin`, `ephemeral`, `fixed:SECONDS`.

    Raises ConfigurationError for another.
    """
    if name == "plugin":
        return DelayedMessagePluginDelay()
    if name == "ephemeral":
        return EphemeralQueueDelay()
    kind, _, seconds = name.partition(":")
    if kind != "fixed":
        return CascadeDelay(topology_named(name))
    try:
        return FixedDelay(timedelta(seconds=float(seconds)))
    except (ValueError, OverflowError):
        raise ConfigurationError(f"a fixed delay is written fixed:SECONDS, as in fixed:30, not {name!r}") from None
