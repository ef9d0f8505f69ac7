"""Another delaystore store."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    InvalidMessageError,
    StoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
)
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import MigrationTarget, Problem
from delaystore.migrations.checksum import Checksum, checksum
from delaystore.migrations.runner.clocks import clock_problems
from delaystore.registry import open_url
from delaystore.settings import TransactionMode
from delaystore.stores.abc import ManagedDelayedMessageStore
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind

_EVERY_MESSAGE = (StorePermissionError, StoreSetupError)
"""What no message is to blame for, and waiting does not cure."""


class StoreTarget(MigrationTarget):
    """`store`, initialized for `endpoint` here: messages wait there as they did before.

    A message that already waits there, unchanged, is taken as moved: sent twice, it is there once.
    """

    def __init__(self, store: ManagedDelayedMessageStore, endpoint: str, label: str) -> None:
        store.initialize(endpoint, TransactionMode.NONE)
        self._store = store
        self._label = label

    @property
    def label(self) -> str:
        """The store, and the endpoint."""
        return self._label

    def check(self, destinations: Mapping[str, int]) -> Sequence[Problem]:  # noqa: ARG002 - any is fine to wait for
        """Whether it answers, and by which clock."""
        try:
            return [*self.infrastructure(), *clock_problems("the target's clock", self._store.now(), datetime.now(UTC))]
        except StoreError as error:
            return [Problem(self.label, str(error))]

    def set_up(self, destinations: Mapping[str, int]) -> None:  # noqa: ARG002 - any is fine to wait for
        """Create or upgrade its tables."""
        self._store.setup_infrastructure()

    def send(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:  # noqa: ARG002 - any time
        """Store all at once; one by one where that is refused."""
        try:
            self._store.store_many(messages)
        except StoreUnavailableError as error:
            return [Outcome(OutcomeKind.UNSETTLED, str(error))] * len(messages)
        except _EVERY_MESSAGE:
            raise
        except (StoreError, InvalidMessageError):
            return [self._store_one(message) for message in messages]
        return [DELIVERED] * len(messages)

    def checksum(self, ids: Iterator[Sequence[str]]) -> Checksum | None:
        """Of those that wait."""
        return sum((checksum(self.waiting(page)) for page in ids), Checksum())

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def infrastructure(self) -> Sequence[Problem]:
        """What is wrong with its tables; raises StoreError."""
        return []

    def waiting(self, ids: Sequence[str]) -> Iterator[tuple[str, str, datetime]]:
        """(message_id, destination, due_time) of those of `ids` that wait."""
        found = filter(None, map(self._store.get, ids))
        return ((message.message_id, message.destination, message.due_time) for message in found)

    def _store_one(self, message: DelayedMessage) -> Outcome:
        try:
            self._store.store(message)
        except DuplicateMessageError:
            return self._compared(message)
        except StoreUnavailableError as error:
            return Outcome(OutcomeKind.UNSETTLED, str(error))
        except _EVERY_MESSAGE:
            raise
        except (StoreError, InvalidMessageError) as error:
            return Outcome(OutcomeKind.REFUSED, str(error))
        return DELIVERED

    def _compared(self, message: DelayedMessage) -> Outcome:
        """What to make of a message whose id waits already."""
        there = self._store.get(message.message_id)
        if there is None:  # dispatched this very moment
            return self._store_one(message)
        if _content(there) == _content(message):
            return DELIVERED
        return Outcome(OutcomeKind.REFUSED, f"another message with the id {message.message_id!r} waits at the target")


def open_store_target(url: str, endpoint: str) -> StoreTarget:
    """The target for a store's URL. Raises UnknownSchemeError, ConfigurationError, MissingDependencyError."""
    store = open_url("delaystore.stores", "target", url)
    if not isinstance(store, ManagedDelayedMessageStore):
        raise ConfigurationError("this store cannot show what waits in it, so nothing can be moved there exactly once")
    from delaystore.stores.sql import SqlDelayedMessageStore

    if isinstance(store, SqlDelayedMessageStore):
        from delaystore.migrations.targets.sql_store import SqlStoreTarget

        return SqlStoreTarget(store, endpoint)
    return StoreTarget(store, endpoint, f"{endpoint} in the store {url.partition(':')[0]}")


def _content(message: DelayedMessage) -> tuple[Any, ...]:
    """What a receiver sees; how often it failed is the dispatcher's."""
    return message.destination, message.due_time, message.body, dict(message.headers), dict(message.properties)
