"""Rows that somebody has written by hand, and that hold no message, in the middle of good ones."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import text

from delaystore.dispatcher import Dispatcher
from delaystore.message import UnreadableMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import ManagedDelayedMessageStore
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.codec import decode_mapping
from delaystore.testing import RecordingTransport
from delaystore.transports import SqlQueueTransport
from delaystore.transports.abc import Outcome, OutcomeKind, ReceivedMessage
from tests.faults.backlog import DESTINATION, ENDPOINT, ids, message, messages, open_store
from tests.faults.patience import wait_until

DEEP: Final = '{"a":' * 100_000 + "1" + "}" * 100_000
GARBLED: Final = {
    "sqlite": {
        "a blob for an id": {"message_id": "x'626164'"},
        "an id that is no UTF-8": {"message_id": "CAST(x'ff62' AS TEXT)"},
        "an id that is empty": {"message_id": "''"},
        "an id too long": {"message_id": f"'{'x' * 300}'"},
        "a destination that is no UTF-8": {"destination": "CAST(x'ff' AS TEXT)"},
        "a destination with a line break": {"destination": "'a' || char(10)"},
        "a blob for a destination": {"destination": "x'00'"},
        "text for a due time": {"due_time": "'soon'"},
        "a number for a due time": {"due_time": "1234"},
        "a blob for a due time": {"due_time": "x'00'"},
        "a number for a next attempt": {"next_attempt": "1234"},
        "nothing for a next attempt": {"next_attempt": "''"},
        "a day that there is not": {"next_attempt": "'2020-02-31 00:00:00.000000'"},
        "text for a count": {"failure_count": "'none'"},
        "a fraction for a count": {"failure_count": "1.5"},
        "a blob for headers": {"headers": "x'ff'"},
        "a number for properties": {"properties": "1"},
        "text for a body": {"body": "'text'"},
        "text that is no UTF-8 for a body": {"body": "CAST(x'ff' AS TEXT)"},
        "a number for a body": {"body": "12345678901234567"},
        "headers nested deeply": {"headers": f"'{DEEP}'"},
    },
    "mariadb": {
        "an id that is no UTF-8": {"message_id": "x'ff62'"},
        "an id with a NUL": {"message_id": "x'610062'"},
        "an id that is empty": {"message_id": "''"},
        "a destination that is no UTF-8": {"destination": "x'ff'"},
        "a zero due time": {"due_time": "'0000-00-00 00:00:00'"},
        "a zero next attempt": {"next_attempt": "'0000-00-00 00:00:00'"},
        "a month without a day": {"next_attempt": "'2020-02-00 00:00:00'"},
        "a negative count": {"failure_count": "-1"},
        "headers that are no JSON": {"headers": "'{'"},
        "headers nested deeply": {"headers": f"'{DEEP}'"},
    },
    "postgresql": {
        "an id that is empty": {"message_id": "''"},
        "an id too long": {"message_id": f"'{'x' * 300}'"},
        "a destination with a line break": {"destination": "E'a\\n'"},
        "a negative count": {"failure_count": "-1"},
        "headers that are no JSON": {"headers": "'{'"},
        "headers with half a surrogate pair": {"headers": '\'{"a":"\\ud800"}\''},
        "properties that are unknown": {"properties": "'{\"colour\":1}'"},
        "headers nested deeply": {"headers": f"'{DEEP}'"},
    },
}
"""By database: what is wrong, and the columns' values as SQL."""


@pytest.fixture(params=GARBLED)
def store(request: pytest.FixtureRequest) -> Iterator[SqlDelayedMessageStore]:
    store = open_store(request.getfixturevalue(f"{request.param}_url"))
    yield store
    store.close()


@pytest.fixture
def garbled(store: SqlDelayedMessageStore) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = GARBLED[kind(store)]
    return found


def kind(store: SqlDelayedMessageStore) -> str:
    """The key in GARBLED: MySQL is as MariaDB."""
    name = store.engine.dialect.name
    return "mariadb" if name == "mysql" else name


def write(store: SqlDelayedMessageStore, **columns: str) -> None:
    """Write a row; `columns`: values as SQL, where they are not those of a message."""
    times = dict.fromkeys(("due_time", "next_attempt"), "'2020-01-02 03:04:05.000000'")
    body = "CAST('body' AS BLOB)" if store.engine.dialect.name == "sqlite" else "'body'"
    values = {"message_id": "'bad'", "destination": f"'{DESTINATION}'", "failure_count": "0", "body": body}
    values |= times | columns
    names, given = ", ".join(values), ", ".join(values.values()).replace(":", "\\:")
    with store.engine.begin() as connection:
        if kind(store) == "mariadb":
            connection.execute(text("SET SESSION sql_mode = ''"))
        if store.engine.dialect.name == "sqlite":
            connection.execute(text("PRAGMA ignore_check_constraints = ON"))
        name = store.engine.dialect.identifier_preparer.format_table(store.table)
        connection.execute(text(f"INSERT INTO {name} ({names}) VALUES ({given})"))
    store.engine.dispose()


def received(transport: SqlQueueTransport, queue: str) -> list[ReceivedMessage]:
    with transport.receive(queue, 1000) as found:
        return list(found)


def dispatched(store: SqlDelayedMessageStore, left: int = 0) -> tuple[list[ReceivedMessage], list[ReceivedMessage]]:
    """What arrives at the destination and in the error queue, until so many are `left`."""
    transport = SqlQueueTransport(store.engine)
    transport.declare(DESTINATION)
    dispatcher = Dispatcher(store, transport, DelayedDeliverySettings(), ENDPOINT)
    wait_until(lambda: bool(dispatcher.dispatch_due()) and store.count() <= left, "all are forwarded or moved")
    dispatcher.dispatch_due()
    return received(transport, DESTINATION), received(transport, "error")


def listed(store: ManagedDelayedMessageStore, limit: int) -> list[Any]:
    """All pages; a bound number of them."""
    found: list[Any] = []
    after = None
    for _ in range(100):
        page = store.list(after=after, limit=limit)
        found += page.messages
        after = page.next_key
        if after is None:
            return found
    raise AssertionError("the pages do not end")


@pytest.mark.long_runs("mariadb")
def test_each_goes_to_the_error_queue_and_stops_nothing(
    store: SqlDelayedMessageStore, garbled: dict[str, dict[str, str]]
) -> None:
    for kind, columns in garbled.items():
        good = messages(3)
        store.store_many(good)
        write(store, **columns)
        assert store.next() is not None, kind
        assert store.count() == 4, kind
        arrived, failed = dispatched(store)
        assert sorted(each.message_id for each in arrived) == sorted(ids(good)), kind
        assert len(failed) == 1, kind
        assert store.count() == 0, kind


@pytest.mark.long_runs("mariadb", "sqlite")
def test_many_at_once_are_listed_and_counted_and_go_to_the_error_queue(
    store: SqlDelayedMessageStore, garbled: dict[str, dict[str, str]]
) -> None:
    good = [message(due_time=datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=n)) for n in range(5)]
    store.store_many(good)
    for number, columns in enumerate(garbled.values()):
        write(store, **{"message_id": f"'bad {number}'", **columns})
    everything = len(garbled) + len(good)
    assert store.count() == everything
    assert sum(store.count_by_due_time(timedelta(days=1)).values()) <= everything
    for limit in (1, 2, 3, 100):
        found = [each.message_id for each in listed(store, limit)]
        assert len(found) == everything
        assert set(ids(good)) <= set(found)
    _, failed = dispatched(store, left=len(good))
    assert len(failed) == len(garbled)
    assert store.count() == len(good)


def test_health_tells_of_the_messages_beside_them(
    store: SqlDelayedMessageStore, garbled: dict[str, dict[str, str]]
) -> None:
    earlier = datetime(2019, 1, 1, tzinfo=UTC)
    store.store(message(due_time=earlier))
    for number, columns in enumerate(garbled.values()):
        write(store, **{"message_id": f"'bad {number}'", **columns})
    assert store.status().first_due == earlier


def test_an_id_that_is_none_is_tried_again_while_the_error_queue_refuses(
    store: SqlDelayedMessageStore, garbled: dict[str, dict[str, str]]
) -> None:
    bad = [columns for columns in garbled.values() if "message_id" in columns]
    for columns in bad:
        write(store, **columns)
    transport = RecordingTransport({"error": Outcome(OutcomeKind.REFUSED, "full")})
    report = Dispatcher(store, transport, DelayedDeliverySettings(), ENDPOINT).dispatch_due()
    assert (report.fetched, report.failed) == (len(bad), len(bad))
    assert [each.failure_count for each in store.list().messages] == [1] * len(bad)


def test_what_cannot_be_used_is_kept_in_the_error_queue(store: SqlDelayedMessageStore) -> None:
    if store.engine.dialect.name != "sqlite":
        pytest.skip("SQLite alone takes any type")
    write(store, message_id="x'ff'", failure_count="'none'", due_time="'soon'", destination="'a' || char(10)")
    [unreadable] = store.list().messages
    assert isinstance(unreadable, UnreadableMessage)
    assert unreadable.reason
    _, [failed] = dispatched(store)
    assert decode_mapping(failed.headers["delaystore.raw-columns"]) == {
        "message_id": b"\xff",
        "destination": "a\n",
        "due_time": "soon",
        "failure_count": "none",
    }
    assert failed.body == b"body"
