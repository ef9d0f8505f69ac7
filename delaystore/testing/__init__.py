"""For authors of stores and transports, and for users' own tests.

`SettableClock` and `RecordingTransport` need delaystore alone; the conformance kit needs `delaystore[testing]`.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from delaystore.extras import needed_for
from delaystore.testing._capabilities import StoreCapabilities, TransportCapabilities
from delaystore.testing._clock import SettableClock
from delaystore.testing._recording import RecordingTransport

if TYPE_CHECKING:
    from delaystore.testing._kit import (
        Outage,
        StoreConformance,
        StoreFactory,
        TransportConformance,
        TransportFactory,
        store_state_machine,
    )

__all__ = [
    "Outage",
    "RecordingTransport",
    "SettableClock",
    "StoreCapabilities",
    "StoreConformance",
    "StoreFactory",
    "TransportCapabilities",
    "TransportConformance",
    "TransportFactory",
    "store_state_machine",
]

_KIT: Final = "delaystore.testing._kit"
_IN_KIT: Final = frozenset(
    {"Outage", "StoreConformance", "StoreFactory", "TransportConformance", "TransportFactory", "store_state_machine"}
)


def __getattr__(name: str) -> Any:
    """Import the kit at its first use: pytest and hypothesis are an extra."""
    if name not in _IN_KIT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed_for(name):
        if _KIT not in sys.modules:
            import_module("pytest").register_assert_rewrite(_KIT)
        return getattr(import_module(_KIT), name)
