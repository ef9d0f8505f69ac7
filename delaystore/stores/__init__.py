"""Where messages wait."""

from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.stores.registry import open_store
from delaystore.stores.sql import SqlDelayedMessageStore

__all__ = [
    "DelayedMessageStore",
    "InMemoryDelayedMessageStore",
    "ManagedDelayedMessageStore",
    "SqlDelayedMessageStore",
    "open_store",
]
