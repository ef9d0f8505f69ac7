"""The conformance kit: the contracts of stores and transports as tests."""

from delaystore.testing._kit._base import StoreFactory
from delaystore.testing._kit._state_machines import store_state_machine
from delaystore.testing._kit._store import StoreConformance
from delaystore.testing._kit._transport_parts import Outage, TransportFactory
from delaystore.testing._kit.transport import TransportConformance

__all__ = [
    "Outage",
    "StoreConformance",
    "StoreFactory",
    "TransportConformance",
    "TransportFactory",
    "store_state_machine",
]
