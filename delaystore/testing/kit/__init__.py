"""The conformance kit: the contracts of stores and transports as tests."""

from delaystore.testing.kit.machine import store_state_machine
from delaystore.testing.kit.store import StoreConformance
from delaystore.testing.kit.transport import TransportConformance

__all__ = ["StoreConformance", "TransportConformance", "store_state_machine"]
