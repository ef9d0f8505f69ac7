"""For users' own tests, and for authors of stores and transports.

`TestDelivery` and the doubles need delaystore alone; the conformance kit needs the extra `testing`. pytest finds the
fixtures (`plugin.py`) by itself.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from delaystore.extras import lazily, needed_for

if TYPE_CHECKING:
    from delaystore.testing._async_delivery import AsyncTestDelivery
    from delaystore.testing._capabilities import StoreCapabilities, TransportCapabilities
    from delaystore.testing._clock import SettableClock
    from delaystore.testing._delivery import TestDelivery
    from delaystore.testing._kit import (
        Outage,
        StoreConformance,
        StoreFactory,
        TransportConformance,
        TransportFactory,
        store_state_machine,
    )
    from delaystore.testing._recording import RecordingTransport
    from delaystore.testing._transaction import AsyncFakeTransaction, FakeTransaction

__all__ = [
    "AsyncFakeTransaction",
    "AsyncTestDelivery",
    "FakeTransaction",
    "Outage",
    "RecordingTransport",
    "SettableClock",
    "StoreCapabilities",
    "StoreConformance",
    "StoreFactory",
    "TestDelivery",
    "TransportCapabilities",
    "TransportConformance",
    "TransportFactory",
    "store_state_machine",
]

_KIT: Final = "delaystore.testing._kit"
_HOMES: Final = {
    "AsyncFakeTransaction": "delaystore.testing._transaction",
    "AsyncTestDelivery": "delaystore.testing._async_delivery",
    "FakeTransaction": "delaystore.testing._transaction",
    "Outage": _KIT,
    "RecordingTransport": "delaystore.testing._recording",
    "SettableClock": "delaystore.testing._clock",
    "StoreCapabilities": "delaystore.testing._capabilities",
    "StoreConformance": _KIT,
    "StoreFactory": _KIT,
    "TestDelivery": "delaystore.testing._delivery",
    "TransportCapabilities": "delaystore.testing._capabilities",
    "TransportConformance": _KIT,
    "TransportFactory": _KIT,
    "store_state_machine": _KIT,
}


def _show_assertions(name: str) -> None:
    """Have pytest explain the kit's failed assertions."""
    if _HOMES[name] == _KIT and _KIT not in sys.modules:
        with needed_for(name):
            import_module("pytest").register_assert_rewrite(_KIT)


__getattr__, __dir__ = lazily(
    __name__, _HOMES, _show_assertions
)  # pytest imports this wherever delaystore is installed
