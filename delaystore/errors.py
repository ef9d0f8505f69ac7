"""The error tree.

Everything delaystore raises on purpose is a `DelaystoreError`; its text says what was wrong and what to do.

    DelaystoreError
    ├── ConfigurationError            a setting, name or URL that cannot work (also a ValueError)
    │   ├── UnknownSchemeError        no store or transport is registered for a URL's scheme
    │   ├── MissingDependencyError    an extra that is not installed
    │   └── UnsupportedModeError      a store, or it and the transport, cannot honour a TransactionMode
    ├── InvalidMessageError           a message no store or transport could carry (also a ValueError)
    │   └── UnsupportedMessageError   a message this transport cannot carry unchanged
    ├── StoreError                    the store failed
    │   ├── StoreUnavailableError     it cannot be reached, or refuses the login
    │   │   ├── MessageBeingStoredError another sender is just storing a message_id
    │   │   ├── MessageBeingDispatchedError a dispatcher has claimed the message of a message_id
    │   │   └── KeyInUseError         a dispatcher, or an open transaction, has the message of a key
    │   ├── DurabilityUnknownError    it is stored, but perhaps not on the synchronous standby
    │   ├── StorePermissionError      its user may not do what was asked
    │   ├── StoreSetupError           tables missing, or of a version this release does not know
    │   ├── TooLargeForStoreError     a message of more bytes than the store takes
    │   ├── DuplicateMessageError     a message_id that already waits
    │   └── DuplicateKeyError         a key that a waiting message has
    ├── MigrationError                a migration that cannot begin or go on
    │   └── MigrationLockedError      another process is working on the same source
    ├── LoadError                     a bulk load that cannot begin or be finished
    │   ├── RejectedRowsError         rows that cannot be messages
    │   ├── LoadInProgressError       another process is loading the same load_id
    │   └── LoadLostError             its staging was lost or taken over; run it again
    └── TransportError                the transport failed
        ├── TransportUnavailableError it cannot be reached, or refuses the login
        │   └── TransportUnansweredError it was there, and left a request without an answer
        └── TransportSetupError       what it needs cannot be declared
"""

from collections.abc import Sequence
from typing import Final

NAMED_DUPLICATES: Final = 10


class DelaystoreError(Exception):
    """Base of every error delaystore raises on purpose."""


class ConfigurationError(DelaystoreError, ValueError):
    """A setting, name or URL that cannot work."""


class UnknownSchemeError(ConfigurationError):
    """No store or transport is registered for a URL's scheme."""


class MissingDependencyError(ConfigurationError):
    """A library that an extra would have installed is missing."""


class UnsupportedModeError(ConfigurationError):
    """A store, or a store and transport together, cannot honour a `TransactionMode`."""


class InvalidMessageError(DelaystoreError, ValueError):
    """A message that no store or transport could carry."""


class UnsupportedMessageError(InvalidMessageError):
    """A message that this transport would change or cannot carry."""


class StoreError(DelaystoreError):
    """The store failed."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached, or refuses the login."""


class DurabilityUnknownError(StoreError):
    """The change is done and committed, but a standby that takes over may not have it.

    PostgreSQL raises a warning instead when a commit that waits for its synchronous standby is cancelled.
    """


class StorePermissionError(StoreError):
    """The store's user may not do what was asked."""


class StoreSetupError(StoreError):
    """The store's tables are missing, or of a version this release does not know."""


class TooLargeForStoreError(StoreError):
    """A message has more bytes than the store takes at once; nothing of the call was stored."""


class MessageBeingStoredError(StoreUnavailableError):
    """A message_id that another sender is just storing, with many others or in an open transaction.

    It waits in a moment, or never does. Nothing of the call was stored; try again.

    Args:
        message_id: One that was found.

    """

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        super().__init__(
            f"the message_id {message_id!r} is just being stored in another transaction, which has not ended; try "
            "again once it has, or if it is your own, enlist this call in it"
        )

    def __reduce__(self) -> tuple[type["MessageBeingStoredError"], tuple[str]]:
        return type(self), (self.message_id,)


class MessageBeingDispatchedError(StoreUnavailableError):
    """A dispatcher has claimed the message of this message_id, and has not settled it within a few seconds.

    The claimed message is neither waiting nor gone: it may be at its destination already. Nothing of the call was
    stored; send again.

    Args:
        message_ids: All that were found to be claimed.

    """

    def __init__(self, message_ids: Sequence[str]) -> None:
        self.message_ids = tuple(message_ids)
        named = ", ".join(repr(message_id) for message_id in self.message_ids[:NAMED_DUPLICATES])
        super().__init__(
            f"message_id {named} is just being dispatched, or an open transaction has changed its message; "
            "nothing was stored: send again"
        )

    def __reduce__(self) -> tuple[type["MessageBeingDispatchedError"], tuple[Sequence[str]]]:
        return type(self), (self.message_ids,)


class DuplicateMessageError(StoreError):
    """A message_id that already waits in the store, or is twice in a load; nothing of the call was stored.

    No dispatcher had claimed the waiting message when this was decided: it will be forwarded after that.

    Args:
        message_ids: The duplicates found; the attribute has the first ten.
        found: The beginning of the text.
        remedy: The end of the text.

    """

    def __init__(
        self,
        message_ids: Sequence[str],
        found: str = "already waiting in the store",
        remedy: str = "use another id, or cancel the waiting message first",
    ) -> None:
        self.message_ids = tuple(message_ids)[:NAMED_DUPLICATES]
        self._found, self._remedy = found, remedy
        named = ", ".join(repr(message_id) for message_id in self.message_ids)
        super().__init__(f"{found}: message_id {named}; {remedy}")

    def __reduce__(self) -> tuple[type["DuplicateMessageError"], tuple[Sequence[str], str, str]]:
        return type(self), (self.message_ids, self._found, self._remedy)


class DuplicateKeyError(StoreError):
    """A message with this key already waits; nothing of the call was stored.

    Args:
        key: The key.
        message_id: The id of the message that waits.

    """

    def __init__(self, key: str, message_id: str) -> None:
        self.key, self.message_id = key, message_id
        super().__init__(
            f"the message {message_id!r} already waits with the key {key!r}; use on_key='keep', 'replace' or "
            "'debounce', or cancel it first"
        )

    def __reduce__(self) -> tuple[type["DuplicateKeyError"], tuple[str, str]]:
        return type(self), (self.key, self.message_id)


class KeyInUseError(StoreUnavailableError):
    """The message with this key is just being dispatched, or is part of a transaction that has not ended.

    It neither waits nor is gone. Nothing of the call was stored; send again.

    Args:
        key: The key.

    """

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"the message with the key {key!r} is just being dispatched, or an open transaction has changed it; "
            "nothing was stored: send again"
        )

    def __reduce__(self) -> tuple[type["KeyInUseError"], tuple[str]]:
        return type(self), (self.key,)


class MigrationError(DelaystoreError):
    """A migration that cannot begin or go on as it was asked to."""


class MigrationLockedError(MigrationError):
    """Another process is working on the same source; the text says which."""


class LoadError(DelaystoreError):
    """A bulk load that cannot begin or be finished; nothing of it is stored, unless the store cannot undo."""


class RejectedRowsError(LoadError):
    """Rows of the load cannot be messages; the text counts them by reason, with examples."""


class LoadInProgressError(LoadError):
    """Another process is loading the same load_id; the text says which."""


class LoadLostError(LoadError):
    """Staged rows of the load were lost, or taken over by another process; run the load again."""


class TransportError(DelaystoreError):
    """The transport failed."""


class TransportUnavailableError(TransportError):
    """The transport cannot be reached, or refuses the login."""


class TransportUnansweredError(TransportUnavailableError):
    """The transport was there, and left one request without an answer: perhaps nothing else is hung."""


class TransportSetupError(TransportError):
    """Something the transport needs cannot be declared."""
