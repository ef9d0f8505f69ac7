"""What an ingress needs on a broker: its exchanges, queues and bindings; created, verified, read and deleted."""

from delaystore.ingress.topology._creation import Creation, TopologyRefusedError, create
from delaystore.ingress.topology._layout import IngressTopology, entrance_type_for
from delaystore.ingress.topology._names import IngressNames
from delaystore.ingress.topology._plugin import PluginExchange
from delaystore.ingress.topology._replacement import replace_exchange
from delaystore.ingress.topology._switch import Switch, switch_from_plugin

__all__ = [
    "Creation",
    "IngressNames",
    "IngressTopology",
    "PluginExchange",
    "Switch",
    "TopologyRefusedError",
    "create",
    "entrance_type_for",
    "replace_exchange",
    "switch_from_plugin",
]
