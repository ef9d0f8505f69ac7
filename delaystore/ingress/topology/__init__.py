"""What an ingress needs on a broker: its exchanges, queues and bindings; created, verified, read and deleted."""

from delaystore.ingress.names import IngressNames
from delaystore.ingress.topology._creation import create
from delaystore.ingress.topology._deletion import check_deletion, delete
from delaystore.ingress.topology._layout import IngressTopology, entrance_type_for
from delaystore.ingress.topology._plugin import PluginExchange
from delaystore.ingress.topology._replacement import replace_exchange
from delaystore.ingress.topology._status import IngressStatus, QueueStatus, read_status
from delaystore.ingress.topology._switch import Switch, switch_from_plugin
from delaystore.ingress.topology._verification import verify

__all__ = [
    "IngressNames",
    "IngressStatus",
    "IngressTopology",
    "PluginExchange",
    "QueueStatus",
    "Switch",
    "check_deletion",
    "create",
    "delete",
    "entrance_type_for",
    "read_status",
    "replace_exchange",
    "switch_from_plugin",
    "verify",
]
