"""A store that notes what it is asked, with the exact due time, and what it answers."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from delaystore.errors import DuplicateMessageError, StoreError
from delaystore.message import DelayedMessage, KeyRule
from delaystore.stores.abc import REJECT, ManagementOutcome
from delaystore.stores.sql import SqlDelayedMessageStore
from tests.chaos.history import Recorder

FILLING = b" " + b"x" * 150


def body_of(key: str) -> bytes:
    """The body of the message called `key`; two messages may share an id, one after the other, but never a key."""
    return key.encode() + FILLING


def key_of(body: bytes) -> str:
    """The inverse."""
    return body.partition(b" ")[0].decode()


class Notebook:
    """Notes attempts to send, and how they end.

    `fresh`: ids that nobody has used before; DuplicateMessageError then says that an earlier attempt was stored.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.fresh = True
        self.keys: dict[str, str] = {}
        """The message that an id means now."""

    @contextmanager
    def sending(self, messages: Sequence[DelayedMessage], how: str) -> Iterator[None]:
        """Around the call that stores them: `attempted`, then `acknowledged`, `duplicate` or `failed`."""
        keys = [key_of(message.body) for message in messages]
        for key, message in zip(keys, messages, strict=True):
            self.keys[message.message_id] = key
            self._recorder.note(
                "attempted",
                key=key,
                id=message.message_id,
                destination=message.destination,
                due=message.due_time.timestamp(),
                fresh=self.fresh,
                how=how,
            )
        try:
            yield
        except Exception as error:
            kind = "duplicate" if isinstance(error, DuplicateMessageError) else "failed"
            self._note_all(kind, keys, error=f"{type(error).__name__}: {error}"[:300])
            raise
        self._note_all("acknowledged", keys)

    @contextmanager
    def changing(self, what: str, message_id: str, due_time: datetime | None = None) -> Iterator[list[object]]:
        """Around a cancel or reschedule, whose outcome the block appends to what it is given."""
        key = self.keys[message_id]
        due = None if due_time is None else due_time.timestamp()
        self._recorder.note(f"{what}_asked", key=key, due=due)
        outcome: list[object] = []
        try:
            yield outcome
        except StoreError as error:
            self._recorder.note(f"{what}_failed", key=key, error=f"{type(error).__name__}: {error}"[:300])
            raise
        self._recorder.note(f"{what}_answered", key=key, outcome=str(outcome[0]))

    def _note_all(self, kind: str, keys: Sequence[str], **details: object) -> None:
        for key in keys:
            self._recorder.note(kind, key=key, **details)


class RecordingStore(SqlDelayedMessageStore):
    """A SQL store that writes into a `Notebook` whatever is sent, cancelled or rescheduled by it."""

    notebook: Notebook

    def store(self, message: DelayedMessage) -> None:
        with self.notebook.sending([message], "send"):
            super().store(message)

    def store_many(self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT) -> int:
        batch = list(messages)
        with self.notebook.sending(batch, "send_many"):
            return super().store_many(batch, rule)

    def cancel(self, message_id: str) -> ManagementOutcome:
        with self.notebook.changing("cancel", message_id) as outcome:
            outcome.append(answer := super().cancel(message_id))
        return answer

    def reschedule(self, message_id: str, due_time: datetime) -> ManagementOutcome:
        with self.notebook.changing("reschedule", message_id, due_time) as outcome:
            outcome.append(answer := super().reschedule(message_id, due_time))
        return answer
