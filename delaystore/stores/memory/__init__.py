"""A store in this process's memory: for tests, demos, and as the model other stores are compared with."""

from delaystore.stores.memory._enlisted import TransactionHooks
from delaystore.stores.memory._store import InMemoryDelayedMessageStore, open_memory_store

__all__ = ["InMemoryDelayedMessageStore", "TransactionHooks", "open_memory_store"]
