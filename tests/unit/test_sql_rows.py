"""Messages as rows of the table of columns."""

from datetime import UTC, datetime, timedelta

import pytest

from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.stores.sql.codec import NAMES
from delaystore.stores.sql.rows import to_message, to_row

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
MESSAGE = DelayedMessage(
    message_id="m",
    destination="shipping",
    due_time=NOON,
    next_attempt=NOON + timedelta(seconds=1),
    failure_count=2,
    headers={"a": 1},
    properties={"type": "order"},
    body=b"body",
)


def test_rows_have_the_columns_in_their_order() -> None:
    assert tuple(to_row(MESSAGE)) == NAMES


def test_a_row_becomes_its_message() -> None:
    assert to_message(list(to_row(MESSAGE).values())) == MESSAGE


@pytest.mark.parametrize("headers", ["[", '{"a":' * 100_000])
def test_a_row_that_cannot_be_decoded_becomes_an_unreadable_message_with_all_else_as_it_was(headers: str) -> None:
    row = to_row(MESSAGE) | {"headers": headers, "failure_count": -1}
    found = to_message(list(row.values()))
    assert isinstance(found, UnreadableMessage)
    assert found.headers == {
        "delaystore.raw-headers": headers,
        "delaystore.raw-properties": '{"type":"order"}',
        "delaystore.raw-columns": '{"failure_count":-1}',
    }
    assert (found.failure_count, found.properties, found.next_attempt) == (0, {}, MESSAGE.next_attempt)
    assert (found.message_id, found.destination, found.body) == ("m", "shipping", b"body")
