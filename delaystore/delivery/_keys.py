"""Messages with a key, for whoever sends them."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from delaystore.keys import KeyRule
from delaystore.message import DelayedMessage
from delaystore.stores.abc import KeyedDelayedMessageStore
from delaystore.stores.named import keyed


class Storing(Protocol):
    """Whatever stores many messages: a store, also one in somebody else's transaction."""

    def store_many(self, messages: Iterable[DelayedMessage]) -> int:
        """Keep all of `messages`, or none."""
        ...


def store_many(store: Storing, messages: Iterable[DelayedMessage], rule: KeyRule) -> int:
    """Store all of `messages`, those with a key by `rule`; returns how many were stored.

    Raises ConfigurationError for a message with a key where `store` knows none.
    """
    if isinstance(store, KeyedDelayedMessageStore):
        return store.store_many(messages, rule)
    return store.store_many(_without_key(messages, store))


def _without_key(messages: Iterable[DelayedMessage], store: Storing) -> Iterator[DelayedMessage]:
    for message in messages:
        if message.key is not None:
            keyed(store)
        yield message
