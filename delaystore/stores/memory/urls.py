"""The in-memory store by URL."""

from threading import Lock
from typing import Final
from urllib.parse import urlsplit

from delaystore.errors import ConfigurationError
from delaystore.stores.memory.store import InMemoryDelayedMessageStore

_named: Final[dict[str, InMemoryDelayedMessageStore]] = {}
_lock: Final = Lock()


def open_memory_store(url: str) -> InMemoryDelayedMessageStore:
    """`memory://` opens a store of its own; `memory://NAME` a handle on the one this process has by that name.

    Raises ConfigurationError for anything more in the URL.
    """
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigurationError("an in-memory store's URL has nothing but a name; use memory:// or memory://NAME")
    if not parts.netloc:
        return InMemoryDelayedMessageStore()
    with _lock:
        return _named.setdefault(parts.netloc, InMemoryDelayedMessageStore()).share()
