"""One message that waits, by its message_id or by its key, for whoever manages messages."""

from collections.abc import Callable
from typing import TypeVar

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import check_key, check_message_id
from delaystore.stores.abc import KeyedDelayedMessageStore

_Answer = TypeVar("_Answer")


def keyed(store: object) -> KeyedDelayedMessageStore:
    """`store`, which must know keys; raises ConfigurationError."""
    if not isinstance(store, KeyedDelayedMessageStore):
        raise ConfigurationError(f"{type(store).__name__} knows no keys; that takes a KeyedDelayedMessageStore")
    return store


def check_one(message_id: str | None, key: str | None) -> None:
    """Raise InvalidMessageError unless exactly one is given, and could be one."""
    if message_id is not None and key is None:
        check_message_id(message_id)
    elif key is not None and message_id is None:
        check_key(key)
    else:
        raise InvalidMessageError("give exactly one of a message_id and key=")


def ask(
    store: object,
    question: Callable[[str], _Answer],
    message_id: str | None,
    key: str | None,
    nothing: _Answer,
    *,
    changing: bool = False,
) -> _Answer:
    """The answer to `question` about the message of that id, or of that key; `nothing`: there is none.

    Where another message has taken the place of the one that was found, it is asked about that one. `changing`: also
    where the transaction does not see that.
    """
    check_one(message_id, key)
    if key is None:
        return question(str(message_id))
    before, is_first = None, True
    while True:
        newest = changing and not is_first
        found = keyed(store).newest_message_id_of(key) if newest else keyed(store).message_id_of(key)
        if found is not None and found != before:
            answer = question(found)
            if answer != nothing:
                return answer
        elif newest or not changing:
            return nothing
        before, is_first = found, False
