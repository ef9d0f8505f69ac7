"""What authors of stores and transports, and the tests of users, need.

`SettableClock` and `RecordingTransport` need delaystore alone; the conformance kit needs `delaystore[testing]`.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from delaystore.errors import MissingDependencyError
from delaystore.testing.capabilities import StoreCapabilities, TransportCapabilities
from delaystore.testing.clock import SettableClock
from delaystore.testing.recording import RecordingTransport

if TYPE_CHECKING:
    from delaystore.testing.kit import StoreConformance, TransportConformance, store_state_machine

__all__ = [
    "RecordingTransport",
    "SettableClock",
    "StoreCapabilities",
    "StoreConformance",
    "TransportCapabilities",
    "TransportConformance",
    "store_state_machine",
]

_KIT: Final = "delaystore.testing.kit"
_IN_KIT: Final = frozenset({"StoreConformance", "TransportConformance", "store_state_machine"})


def __getattr__(name: str) -> Any:
    """Import the kit when it is asked for: pytest and hypothesis are an extra."""
    if name not in _IN_KIT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if _KIT not in sys.modules:
            import_module("pytest").register_assert_rewrite(_KIT)
        return getattr(import_module(_KIT), name)
    except ModuleNotFoundError as error:
        if error.name not in ("pytest", "hypothesis"):
            raise
        raise MissingDependencyError(
            f"{name} needs the library {error.name}, which is not installed; pip install 'delaystore[testing]'"
        ) from error
