"""The conformance kit: the contracts of stores and transports as tests."""

from delaystore.testing._kit.base import StoreFactory
from delaystore.testing._kit.machine import store_state_machine
from delaystore.testing._kit.store import StoreConformance
from delaystore.testing._kit.transport import TransportConformance
from delaystore.testing._kit.transport_base import Outage, TransportFactory

__all__ = [
    "Outage",
    "StoreConformance",
    "StoreFactory",
    "TransportConformance",
    "TransportFactory",
    "store_state_machine",
]
