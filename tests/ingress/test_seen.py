"""Operators see ingresses: `delaystore status`, the overview and the web page."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from delaystore import DelayedDelivery, DelayedDeliverySettings, RabbitMQTransport, SqlDelayedMessageStore
from delaystore.ingress import health
from delaystore.operations import Overview
from delaystore.server.web import app
from delaystore.stores.records import IngressRecord
from tests.faults.patience import wait_until
from tests.ingress.ground import ENDPOINT, QUEUE, REJECTED, Ground, await_settled, endpoint, running
from tests.integration.cli import CommandLine
from tests.web.pages import Page, browser

SOON = timedelta(seconds=0.1)
SHOWS = f"look at them: delaystore errors list --messages --error-queue {REJECTED}"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "HEARTBEAT_EVERY", SOON)
    monkeypatch.setattr("delaystore.dispatcher.error_queue.REQUEST_EVERY", SOON.total_seconds())


@pytest.fixture
def environment(database_url: str) -> dict[str, str]:
    return {"DELAYSTORE_STORE": database_url, "DELAYSTORE_ENDPOINT": ENDPOINT}


@pytest.fixture
def delivery(sqlite_url: str) -> Iterator[DelayedDelivery]:
    with endpoint(sqlite_url) as delivery:
        delivery.prepare()
        yield delivery


def seen(delivery: DelayedDelivery) -> Overview:
    return delivery.operations.overview()


def a_record(delivery: DelayedDelivery, **given: object) -> IngressRecord:
    """An ingress elsewhere that is well, and has a rejected message."""
    store = delivery.operable_store()
    assert store is not None
    now = store.now()
    record = IngressRecord(
        ingress_id="1",
        queue=QUEUE,
        rejected_queue=REJECTED,
        host="app-7",
        pid=4711,
        version="0.2.0",
        since=now - timedelta(hours=3),
        heartbeat=now,
        stored=12_345,
        rejected=2,
    )
    return replace(record, **given)  # type: ignore[arg-type]


def tell(delivery: DelayedDelivery, **given: object) -> None:
    store = delivery.operable_store()
    assert store is not None
    store.heartbeat_of_ingress(a_record(delivery, **given))


@pytest.mark.long_runs("mariadb", "sqlite")
def test_status_lists_ingresses_and_what_they_rejected(ground: Ground, run: CommandLine, database_url: str) -> None:
    with endpoint(database_url) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"bad", delay="soon")
        await_settled(ingress, 1)
        wait_until(
            lambda: [each.rejected_depth for each in seen(delivery).ingresses or ()] == [1],
            "it tells of the rejected queue",
        )
        shown = run("status")
        assert shown.code == 0
        assert f"rejected     {REJECTED}: 1" in shown.out
        assert SHOWS in shown.out
        (line,) = [line for line in shown.out.splitlines() if line.strip().startswith(QUEUE)]
        assert line.endswith("well")
        document = run("status", "--json").document
        (told,) = document["ingresses"]
        assert (told["queue"], told["rejected"], told["rejected_depth"], told["offline"]) == (QUEUE, 1, 1, False)
        assert f"The rejected queue '{REJECTED}' holds 1 message." in document["wrong"]
        assert f"the rejected queue '{REJECTED}' holds 1 message" in run("health").out
        listed = run("errors", "list", "--messages", "--error-queue", REJECTED, "--transport", ground.url)
        assert (listed.code, "soon" in listed.out) == (0, True)
    document = run("status", "--json").document
    assert document["ingresses"] == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_with_a_transport_the_broker_is_asked(ground: Ground, run: CommandLine, database_url: str) -> None:
    ground.channel.queue_declare(REJECTED, durable=True)
    for _ in range(3):
        ground.channel.basic_publish("", REJECTED, b"bad")
    with endpoint(database_url) as delivery:
        delivery.prepare()
        now = seen(delivery).now
        assert now is not None
        told_long_ago = now - timedelta(seconds=50)
        tell(delivery, rejected_depth=1, rejected_seen=told_long_ago)
        tell(delivery, ingress_id="2", rejected_queue="elsewhere", rejected_depth=7, rejected_seen=told_long_ago)
    shown = run("status").out
    assert f"rejected     {REJECTED}: 1, as of 5" in shown
    assert "s ago; look at them" in shown
    shown = run("status", "--transport", ground.url).out
    assert f"rejected     {REJECTED}: 3; look at them" in shown
    assert "rejected     elsewhere: 7, as of 5" in shown, "the broker of the ingress is another one, perhaps"


def test_a_broker_that_cannot_be_asked_leaves_what_was_told(sqlite_url: str) -> None:
    transport, settings = RabbitMQTransport("amqp://127.0.0.1:1"), DelayedDeliverySettings()
    with DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(sqlite_url), settings=settings) as plain:
        plain.prepare()
        tell(plain, rejected_depth=4)
    store = SqlDelayedMessageStore(sqlite_url)
    delivery = DelayedDelivery(ENDPOINT, store, transport)
    try:
        overview = delivery.operations.overview(5)
    finally:
        delivery.close()
    assert [each.rejected_depth for each in overview.ingresses or ()] == [4]


@pytest.mark.parametrize(
    ("given", "sentence", "state"),
    [
        ({"problem": "there is no queue"}, "does not consume: there is no queue.", "stopped"),
        ({"breakers": {"intake": "triggered"}}, "has a triggered breaker: intake.", "intake triggered"),
        (
            {"unacknowledged": 2, "why_unacknowledged": "the queue is full"},
            "leaves 2 messages unacknowledged: the queue is full.",
            "2 unacknowledged",
        ),
        ({"rejected_depth": 5}, f"The rejected queue '{REJECTED}' holds 5 messages.", "consuming"),
    ],
)
def test_what_hinders_an_ingress_is_told(
    delivery: DelayedDelivery, given: dict[str, object], sentence: str, state: str
) -> None:
    tell(delivery, **given)
    (wrong,) = seen(delivery).wrong
    assert wrong.endswith(sentence)
    page = Page(browser(app(delivery)).get("/").text).text
    assert sentence in page
    assert state in page
    assert "12,345" in page


def test_an_ingress_that_is_well_is_nothing_to_look_at(delivery: DelayedDelivery) -> None:
    tell(delivery, rejected_depth=0)
    assert seen(delivery).wrong == []
    page = Page(browser(app(delivery)).get("/").text).text
    assert "All is well" in page
    assert QUEUE in page


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_ingress_that_is_gone_is_told_of(
    run: CommandLine, delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(delivery, problem="it was so")
    monkeypatch.setattr("delaystore.stores.records.ALIVE", timedelta(0))
    (wrong,) = seen(delivery).wrong
    assert wrong.startswith(f"The ingress of '{QUEUE}' (process 4711 on app-7) is offline: no heartbeat for ")
    shown = run("status").out
    assert "offline: it died, or cannot reach the store" in shown
    assert "it was so" not in shown
    assert run("status", "--json").document["ingresses"][0]["offline"] is True
    assert f"the ingress of '{QUEUE}' is offline" in run("health").out
    page = Page(browser(app(delivery)).get("/").text).text
    assert "offline" in page
    assert "it was so" not in page
