"""What a block of the in-memory store has stored, and shows at its end."""

from datetime import datetime
from typing import Self

from delaystore.message import DelayedMessage
from delaystore.stores.memory._waiting import WaitingMessages


class Stored:
    """Messages whose ids and keys are reserved among what waits. Callers have taken its lock."""

    def __init__(self, waiting: WaitingMessages) -> None:
        self._waiting = waiting
        self.messages: dict[str, DelayedMessage] = {}
        self.keys: dict[str, str] = {}
        """The message_id by key."""
        self.first_sent: dict[str, datetime] = {}
        """By the message_id of messages with a key."""

    def add(self, message: DelayedMessage, first_sent: datetime | None = None) -> None:
        """Reserve its id and its key."""
        self.messages[message.message_id] = message
        self._waiting.reserved.add(message.message_id)
        if message.key is not None:
            self.keys[message.key] = message.message_id
            self._waiting.reserved_keys.add(message.key)
        if first_sent is not None:
            self.first_sent[message.message_id] = first_sent

    def drop(self, message_id: str) -> None:
        """Forget a message, and free its id and its key."""
        message = self.messages.pop(message_id)
        self._waiting.reserved.discard(message_id)
        self.first_sent.pop(message_id, None)
        if message.key is not None:
            del self.keys[message.key]
            self._waiting.reserved_keys.discard(message.key)

    def copy(self) -> Self:
        """What is stored now, for `restore`."""
        other = type(self)(self._waiting)
        other.messages, other.first_sent = dict(self.messages), dict(self.first_sent)
        return other

    def restore(self, before: "Stored") -> None:
        """Store what was stored `before`, and nothing else."""
        for message_id in list(self.messages):
            self.drop(message_id)
        for message_id, message in before.messages.items():
            self.add(message, before.first_sent.get(message_id))

    def end(self) -> None:
        """Free what is reserved."""
        self._waiting.reserved.difference_update(self.messages)
        self._waiting.reserved_keys.difference_update(self.keys)
