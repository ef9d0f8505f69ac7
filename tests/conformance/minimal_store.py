"""The least a store can be: the five methods and `initialize`, claims by lease."""

import threading
import time
from dataclasses import dataclass, field, replace
from datetime import datetime

from delaystore.errors import ConfigurationError, DuplicateMessageError, MessageBeingDispatchedError
from delaystore.message import DelayedMessage, marked
from delaystore.settings import TransactionMode
from delaystore.stores.abc import DelayedMessageStore

LEASE_SECONDS = 60.0
PATIENCE = 2.0


@dataclass
class Storage:
    lock: threading.Lock = field(default_factory=threading.Lock)
    messages: dict[str, DelayedMessage] = field(default_factory=dict)
    claims: dict[str, tuple[object, float]] = field(default_factory=dict)

    def end_leases(self) -> None:
        with self.lock:
            self.claims = {message_id: (claimer, 0.0) for message_id, (claimer, _) in self.claims.items()}


class MinimalStore(DelayedMessageStore):
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        if not endpoint:
            raise ConfigurationError("the endpoint has no name; give it one")

    def store(self, message: DelayedMessage) -> None:
        gives_up = time.monotonic() + PATIENCE
        while not self._is_stored(message):
            if time.monotonic() > gives_up:
                raise MessageBeingDispatchedError([message.message_id])
            time.sleep(0.01)

    def _is_stored(self, message: DelayedMessage) -> bool:
        """False: a dispatcher has claimed the message of this id. It cannot be late where its lease has expired."""
        with self._storage.lock:
            there = self._storage.messages.get(message.message_id)
            if there is not None and self._lease_end(there) > time.monotonic():
                return False
            self._storage.claims.pop(message.message_id, None)
            if there is not None:
                self._storage.messages[there.message_id] = replace(there, due_time=marked(there.due_time))
                raise DuplicateMessageError([message.message_id])
            own = {name: list(value) if isinstance(value, list) else value for name, value in message.headers.items()}
            self._storage.messages[message.message_id] = replace(message, headers=own)
            return True

    def fetch_next_due_timeout(self, at: datetime) -> DelayedMessage | None:
        now = time.monotonic()
        with self._storage.lock:
            free = [
                message
                for message in self._storage.messages.values()
                if message.next_attempt <= at and self._lease_end(message) <= now
            ]
            if not free:
                return None
            oldest = min(free, key=lambda message: message.next_attempt)
            self._storage.claims[oldest.message_id] = (self, now + LEASE_SECONDS)
            return oldest

    def remove(self, message: DelayedMessage) -> bool:
        with self._storage.lock:
            return self._settle(message) is not None

    def increment_failure_count(self, message: DelayedMessage, next_attempt: datetime | None = None) -> bool:
        with self._storage.lock:
            waiting = self._settle(message)
            if waiting is None:
                return False
            failed = replace(waiting, failure_count=waiting.failure_count + 1, next_attempt=next_attempt)
            self._storage.messages[message.message_id] = failed
            return True

    def next(self) -> datetime | None:
        with self._storage.lock:
            return min((message.next_attempt for message in self._storage.messages.values()), default=None)

    def _lease_end(self, message: DelayedMessage) -> float:
        return self._storage.claims.get(message.message_id, (None, 0.0))[1]

    def _settle(self, message: DelayedMessage) -> DelayedMessage | None:
        claimer, _ = self._storage.claims.get(message.message_id, (None, 0.0))
        if claimer is not self:
            return None
        del self._storage.claims[message.message_id]
        return self._storage.messages.pop(message.message_id, None)
