"""An ingress on a broker: its exchanges, queues and bindings; created, verified, read and deleted."""

from delaystore.ingress.settings import IngressNames
from delaystore.ingress.topology._status import IngressStatus, QueueStatus, read_status
from delaystore.ingress.topology.changes import (
    Switch,
    check_deletion,
    create,
    delete,
    replace_exchange,
    switch_from_plugin,
    verify,
)
from delaystore.ingress.topology.layout import IngressTopology, PluginExchange, exchange_type_for, words_of

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
    "exchange_type_for",
    "read_status",
    "replace_exchange",
    "switch_from_plugin",
    "verify",
    "words_of",
]
