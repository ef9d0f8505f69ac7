"""An exchange of the plugin makes way for the one of its name to which programs publish from then on."""

from collections.abc import Callable

from pika import exceptions

from delaystore.cascades import BrokerClient, Creation
from delaystore.errors import ConfigurationError, TransportSetupError
from delaystore.ingress.topology._creation import create
from delaystore.ingress.topology._layout import IngressTopology
from delaystore.ingress.topology._plugin import PluginExchange, read_plugin_exchange
from delaystore.ingress.topology._switch import Switch
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.pika_internals import frames_of
from delaystore.transports.rabbitmq.topology.layout import Part


def replace_exchange(
    broker: BrokerClient, switch: Switch, on_declared: Callable[[Part], object] = lambda _part: None
) -> Creation:
    """Delete the plugin's exchange, and declare the other in its place, at once; all else is declared before.

    `switch`: read from an export, which keeps the bindings that vanish with the exchange: whatever ends this, to call
    `create` declares the rest. In between, some milliseconds, what is published there is refused, and what falls due in
    the plugin is lost: it delivers to whatever has the name.
    Raises TransportSetupError where messages wait in the plugin that would be lost, or where the exchange has changed
    since the export; ConfigurationError without a management API; else as `create`.
    """
    if broker.management is None:
        raise ConfigurationError("only the management API tells of the plugin; pass --management URL")
    plugin, topology = switch.plugin, switch.topology
    live = read_plugin_exchange(broker.management.snapshot(), plugin.name, topology.names.out)
    _refuse_change(plugin, live)
    if live.waiting and not plugin.survives(topology.entrance_type):
        raise TransportSetupError(
            f"{live.waiting:,} messages wait in the plugin for {plugin.name!r}, and would be lost, as the new exchange "
            f"is no {plugin.inner_type} one: wait until they have arrived"
        )
    prepared = create(broker, topology, entrance=False, on_declared=on_declared)
    _swap(broker, topology)
    done = create(broker, topology, on_declared=on_declared)
    return Creation(
        broker=done.broker,
        version=done.version,
        missing=[*prepared.missing, *done.missing],
        declared=prepared.declared + len(topology.entrance.parts),
        unchecked=done.unchecked,
    )


def _refuse_change(exported: PluginExchange, live: PluginExchange) -> None:
    for what in ("inner_type", "arguments", "bindings", "sources"):
        if getattr(exported, what) != getattr(live, what):
            raise TransportSetupError(
                f"exchange {live.name!r} has other {what.replace('_', ' ')} than in the export: export the definitions "
                "anew"
            )


def _swap(broker: BrokerClient, topology: IngressTopology) -> None:
    """Delete, declare and bind, in frames that are sent at once and ask for no answer: so that the gap is short."""
    (exchange,), bindings = topology.entrance.exchanges, topology.entrance.bindings
    try:
        with broker.connections.channel() as channel, quiet_pika():
            frames = frames_of(channel)
            frames.exchange_delete(exchange.name)
            frames.exchange_declare(exchange.name, exchange.type, durable=True)
            for one in bindings:
                if one.source == exchange.name:
                    frames.queue_bind(one.destination, one.source, one.routing_key)
            channel.exchange_declare(exchange.name, passive=True)  # its answer comes after all these are done
    except exceptions.ChannelClosedByBroker as error:
        raise TransportSetupError(
            f"{exchange} cannot be replaced: {reason_of(error)}; settle that, and run the same command again"
        ) from None
