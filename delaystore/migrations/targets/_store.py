"""Another delaystore store."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from typing_extensions import override

from delaystore.errors import (
    DuplicateMessageError,
    InvalidMessageError,
    MessageBeingDispatchedError,
    MessageBeingStoredError,
    StoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
)
from delaystore.message import DelayedMessage, are_same_time
from delaystore.migrations._checksum import Checksum, Identity, checksum
from delaystore.migrations._clocks import clock_problems
from delaystore.migrations.abc import MigrationTarget, Problem
from delaystore.settings import TransactionMode
from delaystore.stores.abc import ManagedDelayedMessageStore
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind

_EVERY_MESSAGE = (StorePermissionError, StoreSetupError)
"""Errors that any message would meet, and that do not pass by themselves."""


class StoreTarget(MigrationTarget):
    """`store`, initialized for `endpoint` here: messages wait there as they did before.

    It keeps no receipts. A message that already waits there, unchanged, counts as moved; one that was cancelled,
    changed or dispatched between a kill and the resume is not known again.
    """

    def __init__(self, store: ManagedDelayedMessageStore, endpoint: str, label: str) -> None:
        store.initialize(endpoint, TransactionMode.NONE)
        self._store = store
        self._label = label

    @property
    @override
    def label(self) -> str:
        return self._label

    @override
    def check(self, destinations: Mapping[str, int]) -> Sequence[Problem]:
        try:
            return [
                *self.infrastructure_problems(),
                *clock_problems("the target's clock", self._store.now(), datetime.now(UTC)),
            ]
        except StoreError as error:
            return [Problem(self.label, str(error))]

    @override
    def set_up(self, destinations: Mapping[str, int]) -> None:
        self._store.setup_infrastructure()
        self._store.tidy()

    @override
    def send(self, messages: Sequence[DelayedMessage], now: datetime) -> Sequence[Outcome]:
        return store_each(self._store, messages)

    @override
    def refusals(self, messages: Sequence[DelayedMessage]) -> Sequence[str | None]:
        """Where another message with its id waits there already."""
        if self.infrastructure_problems():  # nothing waits where there is no table yet
            return [None] * len(messages)
        there = {message_id for message_id, _, _ in self.waiting([message.message_id for message in messages])}
        return [self._refusal(message) if message.message_id in there else None for message in messages]

    @override
    def checksum(self, moved: Iterator[Sequence[Identity]]) -> Checksum | None:
        return sum((checksum(self._without_marks(page)) for page in moved), Checksum())

    @override
    def close(self) -> None:
        self._store.close()

    def infrastructure_problems(self) -> Sequence[Problem]:
        """What is wrong with its tables. Raises StoreError."""
        return []

    def waiting(self, ids: Sequence[str]) -> Iterator[Identity]:
        """(message_id, destination, due_time) of those of `ids` that wait."""
        found = filter(None, map(self._store.get, ids))
        return ((message.message_id, message.destination, message.due_time) for message in found)

    def _without_marks(self, moved: Sequence[Identity]) -> Iterator[Identity]:
        """Those of `moved` that wait."""
        times = {message_id: due_time for message_id, _, due_time in moved}
        for message_id, destination, due_time in self.waiting(list(times)):
            is_same = are_same_time(due_time, times[message_id])
            yield message_id, destination, times[message_id] if is_same else due_time

    def _refusal(self, message: DelayedMessage) -> str | None:
        there = self._store.get(message.message_id)
        return None if there is None or _is_same(there, message) else _taken(message)


def store_each(store: ManagedDelayedMessageStore, messages: Sequence[DelayedMessage]) -> list[Outcome]:
    """Store all at once; one by one where that fails. An outcome for each; see `MigrationTarget.send`."""
    try:
        store.store_many(messages)
    except (MessageBeingStoredError, MessageBeingDispatchedError):
        return [_store_one(store, message) for message in messages]
    except StoreUnavailableError as error:
        return [Outcome(OutcomeKind.UNSETTLED, str(error))] * len(messages)
    except _EVERY_MESSAGE:
        raise
    except (StoreError, InvalidMessageError):
        return [_store_one(store, message) for message in messages]
    return [DELIVERED] * len(messages)


def _store_one(store: ManagedDelayedMessageStore, message: DelayedMessage) -> Outcome:
    try:
        store.store_many([message])  # unlike `store`, it leaves the transaction of a bound store as it was if it fails
    except DuplicateMessageError:
        return _compared(store, message)
    except StoreUnavailableError as error:
        return Outcome(OutcomeKind.UNSETTLED, str(error))
    except _EVERY_MESSAGE:
        raise
    except (StoreError, InvalidMessageError) as error:
        return Outcome(OutcomeKind.REFUSED, str(error))
    return DELIVERED


def _compared(store: ManagedDelayedMessageStore, message: DelayedMessage) -> Outcome:
    """The outcome for a message whose id already waits at the target."""
    there = store.get(message.message_id)
    if there is None:  # it was dispatched this very moment
        return _store_one(store, message)
    if _is_same(there, message):
        return DELIVERED
    return Outcome(OutcomeKind.REFUSED, _taken(message))


def _taken(message: DelayedMessage) -> str:
    return f"another message with the id {message.message_id!r} waits at the target"


def _is_same(there: DelayedMessage, message: DelayedMessage) -> bool:
    """Whether a receiver would see the same, at the same time; the failure count is left out."""
    return _content(there) == _content(message) and are_same_time(there.due_time, message.due_time)


def _content(message: DelayedMessage) -> tuple[Any, ...]:
    return message.destination, message.body, dict(message.headers), dict(message.properties)
