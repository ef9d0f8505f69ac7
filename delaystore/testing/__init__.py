"""For tests: conformance kits for authors of stores and transports, and what users test their programs with.

`_kit` has the conformance kits; `_delivery`, `_fakes` and `plugin` are for users' tests.
May be changed freely: `_kit`, as long as it finds the same faults; users' tests use the names in `__all__`.
May import: the ground, `stores`, `transports`, `dispatcher`, `delivery`, `operations`.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from delaystore.registry import lazily, needed_for

if TYPE_CHECKING:
    from delaystore.testing._capabilities import StoreCapabilities, TransportCapabilities
    from delaystore.testing._delivery import AsyncTestDelivery, TestDelivery
    from delaystore.testing._fakes import AsyncFakeTransaction, FakeTransaction, RecordingTransport, SettableClock
    from delaystore.testing._kit import (
        Outage,
        StoreConformance,
        StoreFactory,
        TransportConformance,
        TransportFactory,
        store_state_machine,
    )

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
    "AsyncFakeTransaction": "delaystore.testing._fakes",
    "AsyncTestDelivery": "delaystore.testing._delivery",
    "FakeTransaction": "delaystore.testing._fakes",
    "Outage": _KIT,
    "RecordingTransport": "delaystore.testing._fakes",
    "SettableClock": "delaystore.testing._fakes",
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
