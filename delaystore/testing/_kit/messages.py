"""Messages to test with, and how to tell whether two are the same."""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from delaystore.message import DelayedMessage, marked, new_message_id
from delaystore.stores.abc import DelayedMessageStore

NOON: Final = datetime(2031, 1, 1, 12, tzinfo=UTC)
"""An instant in the future: nothing is due by itself."""
TICK: Final = timedelta.resolution
"""The microsecond that decides between due and not due."""
SECOND: Final = timedelta(seconds=1)
FAR: Final = NOON + timedelta(days=1)


class Undone(Exception):  # noqa: N818 - raised by the tests on purpose, it is no error
    """Ends a block that shall be undone."""


def a_message(message_id: str | None = None, due_time: datetime = NOON, **fields: Any) -> DelayedMessage:
    """A message; name only the fields that matter."""
    defaults: dict[str, Any] = {"destination": "billing", "body": b"body"}
    return DelayedMessage(message_id=message_id or new_message_id(), due_time=due_time, **(defaults | fields))


def told(message: DelayedMessage, times: int = 1) -> DelayedMessage:
    """`message`, as it waits once so many senders have been told that it does."""
    for _ in range(times):
        message = dataclasses.replace(message, due_time=marked(message.due_time))
    return message


def some_messages(count: int, due_time: datetime = NOON, step: timedelta = SECOND) -> list[DelayedMessage]:
    """`m0`, `m1`, ..., the first due at `due_time`, the others `step` apart."""
    return [a_message(f"m{number}", due_time + number * step) for number in range(count)]


def ids(messages: Sequence[DelayedMessage]) -> list[str]:
    """The message_ids of `messages`, in their order."""
    return [message.message_id for message in messages]


def claimed(store: DelayedMessageStore, at: datetime = NOON) -> DelayedMessage:
    """The first message due at `at`, now claimed; fails if there is none."""
    message = store.fetch_next_due_timeout(at)
    assert message is not None
    return message


def taken(store: DelayedMessageStore, at: datetime, limit: int = 1000) -> Sequence[DelayedMessage]:
    """What one block fetches and removes."""
    with store.transaction() as transaction:
        messages = transaction.fetch_due(at, limit)
        assert transaction.remove_many(messages) == len(messages)
    return messages


def all_taken(store: DelayedMessageStore, at: datetime) -> list[DelayedMessage]:
    """What blocks fetch and remove until nothing is due, in the order fetched."""
    messages: list[DelayedMessage] = []
    while some := taken(store, at):
        messages += some
    return messages


def assert_same(actual: DelayedMessage | None, expected: DelayedMessage) -> None:
    """Fail, naming the field, unless `actual` is `expected`, types included."""
    assert actual is not None, f"{expected.message_id!r} was not found"
    assert type(actual) is type(expected), actual
    for field in dataclasses.fields(expected):
        assert exactly(getattr(actual, field.name)) == exactly(getattr(expected, field.name)), field.name
    assert actual.due_time.utcoffset() == timedelta(0)


def assert_only(actual: Sequence[DelayedMessage], expected: DelayedMessage) -> None:
    """Fail unless `actual` is `expected` and nothing else."""
    assert ids(actual) == [expected.message_id]
    assert_same(actual[0], expected)


def exactly(value: Any, *, scale: bool = True) -> Any:
    """`value` in a form that is equal only for equal types, signs, exponents and NaNs.

    `scale`: whether a Decimal's trailing zeros count, too, and the sign of a zero.
    """
    if isinstance(value, Mapping):
        return {name: exactly(item, scale=scale) for name, item in value.items()}
    if isinstance(value, list):
        return [exactly(item, scale=scale) for item in value]
    if isinstance(value, datetime):
        return "datetime", value.astimezone(UTC)
    if isinstance(value, float) or (isinstance(value, Decimal) and (scale or value.is_nan())):
        return type(value).__name__, str(value)
    return type(value).__name__, value
