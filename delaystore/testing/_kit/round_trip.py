"""What goes in comes out."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings

from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.testing._kit.base import StoreTests
from delaystore.testing._kit.messages import NOON, a_message, all_taken, assert_only, assert_same, exactly
from delaystore.testing._kit.strategies import messages

_HEADERS: dict[str, Any] = {
    "none": None,
    "yes": True,
    "one": 1,
    "huge": -(10**30),
    "float": 0.1,
    "negative zero": -0.0,
    "infinity": float("inf"),
    "decimal": Decimal("1.10"),
    "text": "nul \0, quote ' and \", backslash \\, emoji 🕰, newline \r\n",
    "bytes": bytes(range(256)),
    "instant": datetime(2027, 3, 28, 1, 30, 0, 123456, tzinfo=UTC),
    "list": [1, [True, [None, b"\0"]], {"deep": [{"er": 1.5}]}],
    "map": {"$bytes": "not bytes", "": {}, "empty": []},
}
_PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain; charset=utf-8",
    "correlation_id": "ü" * 100,
    "priority": 9,
    "timestamp": datetime(2027, 1, 1, 12, 0, 0, 654321, tzinfo=UTC),
    "delivery_mode": 1,
}
_DESTINATIONS = (
    "billing'; DROP TABLE delayed; --",
    'a "quoted" `name` [x]',
    "100%_\\",
    " spaces ",
    "ünïcödé 🕰",
    "d" * 255,
    "/queues/" + "%2F" * 255,
    ":name %(name)s ? $1",
)
_ALIKE = ("a", "A", "a ", " a", "ä", "a\N{COMBINING DIAERESIS}", "ß", "ss", "\t", "%", "_", "🕰", "'", "i" * 255)


class RoundTripTests(StoreTests):
    """Bodies, headers, properties, ids and destinations come back exactly, types included."""

    def test_headers_and_properties_come_back_with_their_types(self, store: DelayedMessageStore) -> None:
        message = a_message("a", headers=_HEADERS, properties=_PROPERTIES)
        store.store(message)
        assert_only(all_taken(store, NOON), message)

    def test_any_message_comes_back_as_it_went_in(self, store: DelayedMessageStore) -> None:
        @settings(max_examples=100, deadline=None)
        @given(messages())
        def comes_back(message: DelayedMessage) -> None:
            store.store(message)
            assert_only(all_taken(store, message.next_attempt), message)

        comes_back()

    def test_any_batch_comes_back_as_it_went_in(self, store: DelayedMessageStore) -> None:
        @settings(max_examples=30, deadline=None)
        @given(messages(), messages())
        def comes_back(one: DelayedMessage, another: DelayedMessage) -> None:
            batch = {message.message_id: message for message in (one, another)}
            store.store_many(batch.values())
            found = all_taken(store, max(one.next_attempt, another.next_attempt))
            assert len(found) == len(batch)
            for message in found:
                assert_same(message, batch[message.message_id])

        comes_back()

    @pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536, 1024 * 1024])
    def test_bodies_of_any_size_come_back(self, store: DelayedMessageStore, size: int) -> None:
        body = random.Random(size).randbytes(size)  # noqa: S311 - not for secrets
        store.store(a_message("one", body=body))
        store.store_many([a_message("many", body=body)])
        assert [message.body for message in all_taken(store, NOON)] == [body, body]

    def test_message_ids_that_look_alike_are_told_apart(self, store: DelayedMessageStore) -> None:
        half = len(_ALIKE) // 2
        for message_id in _ALIKE[:half]:
            store.store(a_message(message_id, body=message_id.encode()))
        assert store.store_many(a_message(each, body=each.encode()) for each in _ALIKE[half:]) == len(_ALIKE) - half
        with store.transaction() as transaction:
            assert transaction.remove(a_message("i")) is False
        found = {message.message_id: message.body for message in all_taken(store, NOON)}
        assert found == {message_id: message_id.encode() for message_id in _ALIKE}

    @pytest.mark.parametrize("destination", _DESTINATIONS)
    def test_destinations_are_text_and_nothing_else(self, store: DelayedMessageStore, destination: str) -> None:
        store.store(a_message("a", destination=destination))
        store.store_many([a_message("b", destination=destination)])
        assert {message.destination for message in all_taken(store, NOON)} == {destination}

    def test_due_times_of_any_zone_come_back_as_the_same_instant(self, store: DelayedMessageStore) -> None:
        due_time = datetime.fromisoformat("2027-10-31T02:30:00.000001+02:00")
        store.store(a_message("a", due_time))
        (found,) = all_taken(store, due_time)
        assert found.due_time == due_time
        assert found.due_time.utcoffset() == timedelta(0)

    def test_what_was_stored_does_not_change_with_the_callers_dict(self, store: DelayedMessageStore) -> None:
        headers = {"list": [1]}
        store.store(a_message("a", headers=headers))
        headers["list"].append(2)
        (found,) = all_taken(store, NOON)
        assert exactly(found.headers) == exactly({"list": [1]})
