"""Messages with a key, for whoever sends them."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from delaystore.keys import KeyRule
from delaystore.message import DelayedMessage
from delaystore.operations.changes import audited
from delaystore.stores.abc import KeyedDelayedMessageStore
from delaystore.stores.named import keyed
from delaystore.stores.operable import AuditedKeyedStore, Change


class Storing(Protocol):
    """Whatever stores many messages: a store, also one in somebody else's transaction."""

    def store_many(self, messages: Iterable[DelayedMessage]) -> int:
        """Keep all of `messages`, or none."""
        ...


def store_keyed(store: object, message: DelayedMessage, rule: KeyRule, change: Change | None) -> str:
    """Store a message with a key by `rule`, and note `change` if it replaces another; returns the id that waits.

    Raises ConfigurationError where `store` knows no keys.
    """
    knowing = keyed(store)
    return knowing.store_keyed(message, rule) if change is None else _noting(store, message, rule, change)


def _noting(store: Any, message: DelayedMessage, rule: KeyRule, change: Change) -> str:
    audited(store)
    stored: str = store.store_keyed(message, rule, change=change)
    return stored


def store_many(store: Storing, messages: Iterable[DelayedMessage], rule: KeyRule, change: Change | None) -> int:
    """Store all of `messages`, those with a key by `rule`, and note `change` for each that is replaced.

    Returns how many were stored. Raises ConfigurationError for a message with a key where `store` knows none.
    """
    if change is not None and isinstance(store, AuditedKeyedStore):
        return store.store_many(messages, rule, change=change)
    if isinstance(store, KeyedDelayedMessageStore):
        return store.store_many(messages, rule)
    return store.store_many(_without_key(messages, store))


def _without_key(messages: Iterable[DelayedMessage], store: Storing) -> Iterator[DelayedMessage]:
    for message in messages:
        if message.key is not None:
            keyed(store)
        yield message
