"""A store in this process's memory: for tests, demos, and as the model other stores are compared with.

`_waiting.py` has the messages and destinations of one endpoint, under one lock; `_store.py` the store,
`_transaction.py` its transactions; `_operating.py` what operators and dispatchers ask. All of it may be changed freely,
as long as the conformance kit passes. It imports the contracts of `stores`, and no database.
"""

from delaystore.stores.memory._store import InMemoryDelayedMessageStore, TransactionHooks, open_memory_store

__all__ = ["InMemoryDelayedMessageStore", "TransactionHooks", "open_memory_store"]
