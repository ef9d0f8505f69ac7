"""Stores by URL."""

from delaystore.registry import open_url
from delaystore.stores.abc import DelayedMessageStore


def open_store(url: str) -> DelayedMessageStore:
    """The store for `url`, from the entry points `delaystore.stores`.

    Raises UnknownSchemeError, ConfigurationError, MissingDependencyError.
    """
    store: DelayedMessageStore = open_url("delaystore.stores", "store", url)
    return store
