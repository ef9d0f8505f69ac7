"""The error tree.

Every error that delaystore raises on purpose is a `DelaystoreError`. Its text names the cause and the remedy.

    DelaystoreError
    ├── ConfigurationError            a setting, name or URL that cannot work (also a ValueError)
    │   ├── UnknownSchemeError        no store or transport is registered for a URL's scheme
    │   ├── MissingDependencyError    an extra that is not installed
    │   ├── UnsupportedModeError      the store and the transport do not support a TransactionMode
    │   └── UnknownLoadError          no load has this id
    ├── InvalidMessageError           a message that no store or transport can carry (also a ValueError)
    │   └── UnsupportedMessageError   a message that this transport cannot carry unchanged
    ├── InvalidScheduleError          a recurring schedule that cannot be (also a ValueError)
    ├── StoreError                    the store failed
    │   ├── StoreUnavailableError     the store cannot be reached, or refuses the login
    │   │   ├── MessageBeingStoredError another transaction is storing a message_id
    │   │   ├── MessageBeingDispatchedError a dispatcher has claimed the message of a message_id
    │   │   └── KeyInUseError         a dispatcher, or an open transaction, has the message of a key
    │   ├── DurabilityUnknownError    committed, but perhaps not on the synchronous standby
    │   ├── StorePermissionError      the database user lacks a right
    │   ├── StoreSetupError           tables are missing, or of an unknown version
    │   ├── TooLargeForStoreError     a message has more bytes than the store accepts
    │   ├── DuplicateMessageError     a message with this message_id is waiting
    │   │   └── MessageDeliveredError a message with this message_id was delivered before
    │   └── DuplicateKeyError         a message with this key is waiting
    ├── MigrationError                a migration cannot start or continue
    │   └── MigrationLockedError      another process is working on the same source
    ├── LoadError                     a bulk load cannot start or finish
    │   ├── RejectedRowsError         rows that cannot become messages
    │   ├── LoadInProgressError       another process is loading the same load_id
    │   └── LoadLostError             staged rows were lost or taken over
    └── TransportError                the transport failed
        ├── TransportUnavailableError the transport cannot be reached, or refuses the login
        │   └── TransportUnansweredError the transport did not answer a request
        └── TransportSetupError       a queue or exchange cannot be declared
"""

from collections.abc import Sequence
from typing import Final

NAMED_DUPLICATES: Final = 10


class DelaystoreError(Exception):
    """Base of every error that delaystore raises on purpose.

    Catch this class to handle every error of delaystore.

    Remedy: read the text of the error. It ends with the remedy, if one is known.
    """


class ConfigurationError(DelaystoreError, ValueError):
    """A setting, name, option or URL is invalid.

    Raised before anything is sent or changed. It is also a ValueError.

    Remedy: correct the value that the text names.
    """


class UnknownSchemeError(ConfigurationError):
    """No store or transport is registered for the scheme of a URL.

    Raised for a misspelt scheme, or if the package that registers the scheme is not installed.

    Remedy: use one of the schemes that the text lists, or install the package with the plug-in.
    """


class MissingDependencyError(ConfigurationError):
    """A library is missing because an extra of delaystore is not installed.

    Raised when a feature needs a driver, Spark, the web page or another library that is not installed.

    Remedy: install the extra that the text names, in the environment of your program.
    """


class UnsupportedModeError(ConfigurationError):
    """The store and the transport do not support the requested `TransactionMode`.

    Raised when a delivery starts, for example with `TRANSACTION_SCOPE` and a broker: a broker has no part in the
    transaction of the store.

    Remedy: choose another mode, or a transport in the database of the store.
    """


class UnknownLoadError(ConfigurationError):
    """No load of a file, DataFrame or stream has this id.

    Remedy: list the loads, as by `delaystore loads list`, and correct the id.
    """


class InvalidMessageError(DelaystoreError, ValueError):
    """No store or transport can carry the message, or a request is invalid.

    Raised by `send` and other calls before the message is stored. It is also a ValueError.

    Remedy: correct the field that the text names, such as the destination, the due time or a header.
    """


class UnsupportedMessageError(InvalidMessageError):
    """The transport would change the message or cannot carry it.

    Raised for values that the protocol of the transport does not have, such as floats in AMQP headers.

    Remedy: change the value as the text says, for example send a number as text, or move large headers into the body.
    """


class InvalidScheduleError(DelaystoreError, ValueError):
    """The rule of a recurring schedule is invalid.

    Raised for a cron expression that is misspelt or never matches, for an interval that is out of range, and for an
    unknown time zone. Nothing is stored. It is also a ValueError.

    Remedy: correct the value that the text names.
    """


class StoreError(DelaystoreError):
    """The store refused or failed a call.

    Raised for errors that a repetition does not solve, such as a row that a CHECK of the database refuses.

    Remedy: correct the cause that the text names. Your transaction, if any, must be rolled back.
    """


class StoreUnavailableError(StoreError):
    """The store cannot be reached, refuses the login, or did not answer in time.

    Raised during an outage, a fail-over or a lock of more than `store_timeout`. A call that ended without an answer may
    have been carried out.

    Remedy: try again later. A `send` names its message_id: repeat it with the same message_id, so that the message is
    stored once.
    """


class DurabilityUnknownError(StoreError):
    """The change is committed, but the synchronous standby has not confirmed it.

    Raised when PostgreSQL commits while the wait for its standby is cancelled, by a user or by `store_timeout`. If that
    standby becomes the primary, the change can be missing.

    Remedy: when the standby is connected again, check whether the message is in the store, and send again if it is not.
    """


class StorePermissionError(StoreError):
    """The database user lacks a right.

    Raised when a statement is refused, for example an upgrade of tables by a user that does not own them.

    Remedy: grant the right that the text names, or use another user.
    """


class StoreSetupError(StoreError):
    """The tables of the store are missing, incomplete or of an unknown version.

    Raised when an endpoint has no tables, a column is missing, or a newer release upgraded the tables.

    Remedy: check the names of endpoint, schema and table. Then run `delaystore setup`, or upgrade delaystore.
    """


class TooLargeForStoreError(StoreError):
    """A message has more bytes than the store accepts at once.

    Raised with MariaDB and MySQL for a message that exceeds `max_allowed_packet`. The call stored no message.

    Remedy: raise `max_allowed_packet` on the server, or send a smaller body.
    """


class MessageBeingStoredError(StoreUnavailableError):
    """Another transaction is storing a message with this message_id.

    It is not yet known whether that message will exist. The call stored no message.

    Remedy: try again when the other transaction has ended. If it is your transaction, enlist this call in it.

    Args:
        message_id: The message_id, or one of several.

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
    """A dispatcher has claimed the message with this message_id, and has not settled it within a few seconds.

    The claimed message may be at its destination already. The call stored no message.

    Remedy: send again.

    Args:
        message_ids: All claimed ids of the call.

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
    """A message with this message_id is already waiting, or a load has the message_id twice.

    The call stored no message. No dispatcher had claimed the waiting message at that moment, so it will be delivered.

    Remedy: use another message_id, or cancel the waiting message first. If you repeated a `send` after an error, the
    first attempt may have succeeded.

    Args:
        message_ids: The duplicates; the attribute has the first ten.
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


class MessageDeliveredError(DuplicateMessageError):
    """A message with this message_id was delivered before, as the history of the store says.

    Raised by `send` with `if_delivered="reject"`, and by loads with `ifDelivered` `error`. The call stored no message.

    Remedy: if you repeated a `send`, do nothing, because the first attempt was delivered. Otherwise use another
    message_id.

    Args:
        message_ids: The delivered ids; a load gives the first ten.
        found: The beginning of the text.
        remedy: The end of the text.

    """

    def __init__(
        self,
        message_ids: Sequence[str],
        found: str = "nothing was stored, because these messages were delivered already",
        remedy: str = "if you send again after a failure, do nothing; otherwise use another id",
    ) -> None:
        super().__init__(message_ids, found, remedy)
        self.message_ids = tuple(message_ids)


class DuplicateKeyError(StoreError):
    """A message with this key is already waiting.

    The call stored no message.

    Remedy: cancel the waiting message first, or pass `on_key="keep"`, `"replace"` or `"debounce"`.

    Args:
        key: The key.
        message_id: The id of the waiting message.

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
    """A dispatcher is sending the message with this key, or an open transaction has changed it.

    The message can still be delivered or come back. The call stored no message.

    Remedy: send again.

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
    """A migration cannot start or continue as requested.

    Raised by `delaystore migrate`. The run can be continued: messages are in the source or in the target.

    Remedy: correct the cause that the text names, and start the same command again.
    """


class MigrationLockedError(MigrationError):
    """Another process is working on the same source.

    The text names the process, its host and its last sign of life.

    Remedy: wait until that process ends, or until its lock expires.
    """


class LoadError(DelaystoreError):
    """A bulk load cannot start or finish.

    The load stored no message, unless the store cannot undo writes.

    Remedy: correct the cause that the text names, and load again with the same load id.
    """


class RejectedRowsError(LoadError):
    """Rows of the load cannot become messages.

    The text counts the rows by reason, with examples. The load stored no message.

    Remedy: correct the rows, or name a folder for rejected rows.
    """


class LoadInProgressError(LoadError):
    """Another process is loading the same load id.

    The text names the process, its start and its last sign of life.

    Remedy: wait until that load ends. If its process died, wait for the time that the text names.
    """


class LoadLostError(LoadError):
    """Staged rows of the load were lost, or another process took the load over.

    Raised after a crash of the database, or if the load gave no sign of life for too long. The load stored no message.

    Remedy: run the load again with the same load id.
    """


class TransportError(DelaystoreError):
    """The transport refused or failed a call.

    Raised for errors that a repetition does not solve, such as a message that the broker refuses.

    Remedy: correct the cause that the text names.
    """


class TransportUnavailableError(TransportError):
    """The transport cannot be reached, refuses the login, or the connection was lost.

    Dispatchers reconnect on their own. Other calls raise this error.

    Remedy: check host, port, user, password and virtual host. Then try again.
    """


class TransportUnansweredError(TransportUnavailableError):
    """The transport is connected but did not answer one request.

    Raised for example for a queue whose node is down. Other queues of the broker may work.

    Remedy: check the queue that the text names, and wait for its node.
    """


class TransportSetupError(TransportError):
    """A queue, exchange or binding that the transport needs cannot be declared or is missing.

    Raised when the user lacks permission, or the queue exists with other arguments.

    Remedy: declare the queue yourself, grant permission to configure it, or choose another name.
    """
