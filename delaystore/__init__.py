"""delaystore: a durable, listable, cancellable delayed-message store for Python and RabbitMQ."""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delaystore.delivery import DelayedDelivery
    from delaystore.message import DelayedMessage
    from delaystore.settings import DelayedDeliverySettings, TransactionMode
    from delaystore.stores.abc import DelayedMessageStore

__all__ = [
    "DelayedDelivery",
    "DelayedDeliverySettings",
    "DelayedMessage",
    "DelayedMessageStore",
    "TransactionMode",
]
_HOMES = {
    "DelayedDelivery": "delaystore.delivery",
    "DelayedDeliverySettings": "delaystore.settings",
    "DelayedMessage": "delaystore.message",
    "DelayedMessageStore": "delaystore.stores.abc",
    "TransactionMode": "delaystore.settings",
}

# what a library logs is for those who ask; without this Python would print warnings of those who do not
logging.getLogger("delaystore").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first asked for; the command line begins here too, and asks for none."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
