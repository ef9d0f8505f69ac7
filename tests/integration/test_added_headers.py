"""The headers that a dispatcher adds for consumers, on real databases, RabbitMQ and SQL queues."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.errors import UnsupportedMessageError
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import RabbitMQTransport, SqlQueueTransport
from delaystore.transports.abc import ReceivedMessage, Transport
from delaystore.transports.rabbitmq.properties import MAX_ENCODED_BYTES
from delaystore.transports.rabbitmq.topology import custom
from tests.dispatching import received
from tests.integration.cli import CommandLine
from tests.integration.loading import load
from tests.integration.sql_stores import message, opened

ALL = {"delaystore.due-time", "delaystore.attempt", "delaystore.sent-at", "delaystore.load"}
SECOND = timedelta(seconds=1)


def dispatch(store: SqlDelayedMessageStore, transport: Transport, **settings: Any) -> int:
    chosen = DelayedDeliverySettings(**{"added_headers": "all", **settings})
    return Dispatcher(store, transport, chosen, endpoint="sales").dispatch_due().delivered


def times(headers: Mapping[str, Any]) -> tuple[datetime, datetime]:
    """The due time and when it was sent, as a consumer reads them."""
    due, sent = (datetime.fromisoformat(headers[f"delaystore.{name}"]) for name in ("due-time", "sent-at"))
    return due, sent


@pytest.fixture
def broker(rabbitmq_url: str) -> Iterator[RabbitMQTransport]:
    """With a cascade of milliseconds, and `billing` declared."""
    delays = custom("test", levels=22, unit=timedelta(milliseconds=1))
    with closing(RabbitMQTransport(rabbitmq_url, delays=delays, queue_type="classic")) as transport:
        transport.declare("billing")
        yield transport


@pytest.fixture
def waiting(prepared_postgresql_url: str) -> Iterator[SqlDelayedMessageStore]:
    with opened(prepared_postgresql_url) as store:
        yield store


def by_id(transport: Transport, count: int) -> dict[str, ReceivedMessage]:
    return {each.message_id: each for each in received(transport, "billing", count)}


@pytest.mark.parametrize("mode", [TransactionMode.TRANSACTION_SCOPE, TransactionMode.RECEIVE_ONLY])
@pytest.mark.long_runs("mariadb")
def test_they_arrive_in_sql_queues(store: SqlDelayedMessageStore, database_url: str, mode: TransactionMode) -> None:
    now = store.now()
    load(database_url, "spring", [message(now, -60, "of a load"), message(now, -3600, "another")])
    load(database_url, "autumn", [message(now, -60, "of autumn")])
    store.store(message(now, -60, "single", headers={"kind": "reminder", "delaystore.attempt": "mine"}))
    with closing(SqlQueueTransport(database_url)) as queues:
        queues.declare("billing")
        assert dispatch(store, queues, transaction_mode=mode) == 4
        found = by_id(queues, 4)
    assert {name: each.headers.get("delaystore.load") for name, each in found.items()} == {
        "of a load": "spring",
        "another": "spring",
        "of autumn": "autumn",
        "single": None,
    }
    assert found["of a load"].headers.keys() == ALL
    assert found["of a load"].headers["delaystore.attempt"] == 1
    assert found["single"].headers["kind"] == "reminder"
    assert found["single"].headers["delaystore.attempt"] == "mine"
    due, sent = times(found["another"].headers)
    assert due == now - 3600 * SECOND
    assert now - SECOND <= sent <= store.now() + SECOND
    assert store.count() == 0


def test_they_arrive_in_rabbitmq(waiting: SqlDelayedMessageStore, broker: RabbitMQTransport) -> None:
    now = waiting.now()
    waiting.store_many(
        [message(now, -60, "plain"), message(now, -60, "own", headers={"delaystore.due-time": "tea time", "n": 1})]
    )
    assert dispatch(waiting, broker) == 2
    found = by_id(broker, 2)
    assert found["plain"].headers.keys() == ALL - {"delaystore.load"}
    assert found["plain"].headers["delaystore.attempt"] == 1
    due, sent = times(found["plain"].headers)
    assert due == now - 60 * SECOND
    assert now - SECOND <= sent <= waiting.now() + SECOND
    assert (found["own"].headers["delaystore.due-time"], found["own"].headers["n"]) == ("tea time", 1)


@pytest.mark.parametrize(
    ("headers", "is_sent"),
    [
        ({"large": "x" * (MAX_ENCODED_BYTES - 80)}, True),
        ({"large": "x" * (MAX_ENCODED_BYTES + 8000)}, False),
        ({"price": 1.5}, False),
    ],
    ids=["the last that fits", "of another program", "float"],
)
def test_a_message_whose_headers_leave_no_room_is_forwarded_without_them(
    waiting: SqlDelayedMessageStore, broker: RabbitMQTransport, headers: dict[str, Any], is_sent: bool
) -> None:
    """`send` refuses some of these, but an ingress takes them from other programs."""
    late = message(waiting.now(), -60, "a", headers=headers)
    if is_sent:
        broker.check(late)
    else:
        with pytest.raises(UnsupportedMessageError):
            broker.check(late)
    waiting.store_many([late, message(waiting.now(), -60, "b")])
    assert dispatch(waiting, broker) == 2
    found = by_id(broker, 2)
    assert found["a"].headers.keys() == headers.keys()
    assert found["b"].headers.keys() == ALL - {"delaystore.load"}


def test_a_message_that_rabbitmq_delays_has_them(waiting: SqlDelayedMessageStore, broker: RabbitMQTransport) -> None:
    now = waiting.now()
    waiting.store(message(now, 3, "early"))
    assert dispatch(waiting, broker, handover_horizon=60) == 1
    assert waiting.count() == 0
    (early,) = received(broker, "billing", 1)
    due, sent = times(early.headers)
    assert due == now + 3 * SECOND
    assert now - SECOND <= sent < due <= datetime.now(UTC) + SECOND


def test_a_program_chooses_them_by_its_settings(prepared_postgresql_url: str, broker: RabbitMQTransport) -> None:
    settings = DelayedDeliverySettings(added_headers=["attempt"])
    store = SqlDelayedMessageStore(prepared_postgresql_url)
    with DelayedDelivery("sales", store, broker, settings) as delivery:
        delivery.send("billing", b"pay", delay=0)
        (found,) = received(broker, "billing", 1)
    assert found.headers == {"delaystore.attempt": 1}


ROWS = "message_id,due_time,body\na,2026-01-01T08:00:00Z,hello\n"


@pytest.fixture
def environment(prepared_postgresql_url: str, rabbitmq_url: str) -> dict[str, str]:
    """The addresses for the command line."""
    return {
        "DELAYSTORE_STORE": prepared_postgresql_url,
        "DELAYSTORE_TRANSPORT": rabbitmq_url,
        "DELAYSTORE_ENDPOINT": "sales",
    }


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_command_adds_the_load_of_a_file(
    run: CommandLine,
    broker: RabbitMQTransport,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_variable: bool,
) -> None:
    file = tmp_path / "letters.csv"
    file.write_text(ROWS)
    assert run("send", "billing", "--file", str(file), "--load-id", "letters-of-may").code == 0
    if by_variable:
        monkeypatch.setenv("DELAYSTORE_DISPATCH_ADDED_HEADERS", "load,due-time")
    options = [] if by_variable else ["--added-headers", "load, due-time"]
    assert run("dispatch", "--once", *options).code == 0
    (found,) = received(broker, "billing", 1)
    assert found.headers == {
        "delaystore.load": "letters-of-may",
        "delaystore.due-time": "2026-01-01T08:00:00+00:00",
    }


def test_an_unknown_name_is_refused_by_one_line(run: CommandLine) -> None:
    line = run.refused("dispatch", "--once", "--added-headers", "due-time,sent_at")
    said = "--added-headers cannot be 'sent_at'; choose from due-time, attempt, sent-at, load, or all"
    assert line == f"error: {said}"
    assert said in run.refused("serve", "--check", "--added-headers", "sent_at")


def test_the_file_of_the_service_has_them(run: CommandLine, tmp_path: Path, environment: dict[str, str]) -> None:
    def config(value: str) -> str:
        file = tmp_path / "delaystore.toml"
        addresses = f'store = "{environment["DELAYSTORE_STORE"]}"\ntransport = "{environment["DELAYSTORE_TRANSPORT"]}"'
        file.write_text(f"[endpoint.sales]\n{addresses}\n[endpoint.sales.dispatcher]\nadded_headers = {value}\n")
        return str(file)

    assert run("serve", "--check", "--config", config('["due-time", "load"]')).code == 0
    shown = run("serve", "--print-config", "--config", config('"all"'), "--json").document
    assert shown["endpoint"]["sales"]["dispatcher"]["added_headers"] == ["all"]
    for value, said in (
        ('["late"]', "added_headers cannot be 'late'; choose from due-time, attempt, sent-at, load, or all"),
        ("3", "added_headers must be an array of texts, or a text with commas, not 3"),
    ):
        line = run.refused("serve", "--check", "--config", config(value))
        assert f"[endpoint.sales.dispatcher] {said}" in line
