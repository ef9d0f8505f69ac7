"""What an ingress needs on a broker: its exchanges, queues and bindings; created, verified, read and deleted."""

from delaystore.ingress.topology._creation import Creation, TopologyRefusedError, create
from delaystore.ingress.topology._layout import IngressTopology, entrance_type_for
from delaystore.ingress.topology._names import IngressNames

__all__ = ["Creation", "IngressNames", "IngressTopology", "TopologyRefusedError", "create", "entrance_type_for"]
