"""A message_id, or key, that is taken: its row waits, or a dispatcher has claimed it and may delete it at any moment.

An insert that a row refuses tells nothing of claims. The row as it is afterwards decides: if it is unclaimed, it is
marked, and the message is a duplicate; if a dispatcher has claimed it, the sender waits; if it has gone, the insert is
made again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, TypeVar

from delaystore.bridge import give_way
from delaystore.errors import DuplicateKeyError, DuplicateMessageError, KeyInUseError, StoreError, StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.stores._keys import patiently

LOOK_AHEAD: Final = 64 * 2**20
"""Bytes of bodies that are taken from a generator to see whether it has many messages."""
_TWICE: Final = "twice among these messages, or waiting in the store until just now"
_AGAIN: Final = "give each id to one message, and send again"

Answer = TypeVar("Answer")
Duplicate = DuplicateMessageError | DuplicateKeyError
"""An id, or a key, that is taken."""
Refusal = Callable[[Duplicate], StoreError | None]
"""Why these ids, or this key, cannot be stored, by their rows as they are now; None: the rows have gone."""


class Messages:
    """Messages to store, of which the first `count` are kept in memory: fewer where their bodies are large."""

    def __init__(self, messages: Iterable[DelayedMessage], count: int) -> None:
        self._iterator: Iterator[DelayedMessage] = iter(())
        if isinstance(messages, Sequence):
            self.first: Sequence[DelayedMessage] = messages
        else:
            self._iterator = iter(messages)
            self.first = _first_of(self._iterator, count)
        self._next = list(islice(self._iterator, 1))

    @property
    def are_kept(self) -> bool:
        """Whether all of them are in memory, and can be stored again."""
        return not self._next

    def repeat_what_is_taken(self, error: Duplicate) -> bool:
        """Whether two of those in memory have one message_id, or one key, as `error` says of a message that waits."""
        taken = [
            message.message_id if isinstance(error, DuplicateMessageError) else message.key for message in self.first
        ]
        present = [each for each in taken if each is not None]
        return len(set(present)) < len(present)

    def __iter__(self) -> Iterator[DelayedMessage]:
        return chain(self.first, self._next, self._iterator)


def decided(
    write: Callable[[], Answer],
    refusal: Refusal,
    patience: float,
    messages: Messages | None = None,
    taken: Duplicate | None = None,
) -> Answer:
    """What `write` returns, made again for `patience` seconds while a dispatcher has a message of its ids or keys.

    `messages`: what `write` stores, where they may be several; it is made once if they are not kept.
    `taken`: the error that `write` has just raised; None: `write` is made first.
    Raises DuplicateMessageError, DuplicateKeyError, MessageBeingDispatchedError, KeyInUseError, StoreUnavailableError
    where the database refuses an id twice and has no row of it, and what `write` raises.
    """
    repeatable = messages is None or messages.are_kept

    def attempt() -> Answer:
        nonlocal taken
        error, taken = taken, None
        if error is None:
            try:
                return write()
            except (DuplicateMessageError, DuplicateKeyError) as raised:
                error = raised
        refused = refusal(error)
        if refused is None and not repeatable:
            refused = error
            if isinstance(error, DuplicateMessageError):
                refused = DuplicateMessageError(error.message_ids, _TWICE, _AGAIN)
        if refused is not None:
            raise refused
        try:
            return write()
        except (DuplicateMessageError, DuplicateKeyError) as error:
            refused = refusal(error)  # a row may have come meanwhile
            if refused is None and not (messages is not None and messages.repeat_what_is_taken(error)):
                refused = _without_a_row(error)
            raise refused or error from None

    return patiently(attempt, patience if repeatable else 0.0)


def _without_a_row(error: Duplicate) -> StoreError:
    if isinstance(error, DuplicateKeyError):
        return KeyInUseError(error.key)
    named = ", ".join(repr(message_id) for message_id in error.message_ids)
    return StoreUnavailableError(
        f"the database refuses message_id {named} as a duplicate, and has no message of this id; nothing was stored: "
        "send again, and if it stays so, drop unique indexes and constraints that you have added to the store's table"
    )


def _first_of(messages: Iterator[DelayedMessage], count: int) -> Sequence[DelayedMessage]:
    """The next `count`; fewer where there are no more, or their bodies are large."""
    first: list[DelayedMessage] = []
    room = LOOK_AHEAD
    for number, message in enumerate(islice(messages, count)):
        give_way(number)
        first.append(message)
        room -= len(message.body)
        if room < 0:
            break
    return first
