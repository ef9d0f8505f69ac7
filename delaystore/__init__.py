"""delaystore: a durable, listable, cancellable delayed-message store for Python and RabbitMQ.

The modules of this folder are the ground, which every package may import, and which imports none of them: messages,
settings, errors, time, texts, filters, plug-ins, processes, calls in progress, circuit breakers.
"""

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delaystore.delivery import AsyncDelayedDelivery, DelayedDelivery
    from delaystore.dispatcher import DispatchObserver
    from delaystore.filters import MessageFilter
    from delaystore.message import DelayedMessage
    from delaystore.settings import DelayedDeliverySettings, TransactionMode
    from delaystore.stores.abc import DelayedMessageStore, ManagementOutcome
    from delaystore.stores.sql import AsyncSqlDelayedMessageStore, SqlDelayedMessageStore
    from delaystore.transports.rabbitmq import RabbitMQTransport

    __version__: str

__all__ = [
    "AsyncDelayedDelivery",
    "AsyncSqlDelayedMessageStore",
    "DelayedDelivery",
    "DelayedDeliverySettings",
    "DelayedMessage",
    "DelayedMessageStore",
    "DispatchObserver",
    "ManagementOutcome",
    "MessageFilter",
    "RabbitMQTransport",
    "SqlDelayedMessageStore",
    "TransactionMode",
    "__version__",
]
_HOMES: Final = {
    "AsyncDelayedDelivery": "delaystore.delivery",
    "AsyncSqlDelayedMessageStore": "delaystore.stores.sql",
    "DelayedDelivery": "delaystore.delivery",
    "DelayedDeliverySettings": "delaystore.settings",
    "DelayedMessage": "delaystore.message",
    "DelayedMessageStore": "delaystore.stores.abc",
    "DispatchObserver": "delaystore.dispatcher",
    "ManagementOutcome": "delaystore.stores.abc",
    "MessageFilter": "delaystore.filters",
    "RabbitMQTransport": "delaystore.transports.rabbitmq",
    "SqlDelayedMessageStore": "delaystore.stores.sql",
    "TransactionMode": "delaystore.settings",
}

# without this, Python would print warnings of the library in programs that have not configured logging
logging.getLogger("delaystore").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: SQLAlchemy, Alembic and pika load slowly, and pika is an extra."""
    if name == "__version__":
        from importlib.metadata import version

        return version("delaystore")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """All public names, also names that are not imported yet. No import: a signal handler must come first."""
    return sorted({*globals(), *__all__})
