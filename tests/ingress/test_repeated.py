"""Messages of ids that were delivered already: dropped by `on_repeat = "drop"`, as long as a history is kept."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore import DelayedDelivery
from delaystore.errors import ConfigurationError
from delaystore.ingress.ingress import Ingress
from delaystore.ingress.settings import IngressSettings
from delaystore.message import DelayedMessage
from delaystore.stores.abc import ManagedDelayedMessageStore
from delaystore.stores.records import Ending
from tests.faults.patience import wait_until
from tests.ingress.ground import LONG, QUEUE, Ground, await_settled, endpoint, rules, running

MONTH = timedelta(days=30)


def claim(bound: Any, store: Any, *ids: str) -> Any:
    """Have a dispatcher claim messages of these ids in its transaction."""
    due = datetime.now(UTC) - timedelta(seconds=10)
    messages = [DelayedMessage(message_id=each, destination="q", due_time=due, body=b"first") for each in ids]
    store.store_many(messages)
    return bound.fetch_due(bound.now(), 100)


def deliver(delivery: DelayedDelivery, *ids: str) -> Any:
    """Have messages of these ids delivered, with a history."""
    delivery.prepare()
    store: Any = delivery.operable_store()
    store.keep_history(MONTH)
    with store.transaction() as bound:
        bound.remove_ended(claim(bound, store, *ids), Ending.DELIVERED, bound.now())
    return store


@pytest.mark.parametrize("rule", ["both", "keep", "replace"])
@pytest.mark.parametrize("at_once", [True, False])
def test_repeated_messages_are_dropped(
    ground: Ground, database_url: str, rule: str, caplog: pytest.LogCaptureFixture, *, at_once: bool
) -> None:
    caplog.set_level("INFO", "delaystore.ingress")
    with endpoint(database_url) as delivery:
        deliver(delivery, "invoice-7", "invoice-8")
        published = [
            ("invoice-7", b"first"),
            ("new", b"x"),
            ("invoice-7", b"other"),
            ("invoice-8", b"first"),
            (None, b"y"),
        ]
        if at_once:
            for message_id, body in published:
                ground.publish(body, delay=LONG, message_id=message_id)
        with running(delivery, ground.url, on_repeat="drop", on_duplicate=rule) as ingress:
            for number, (message_id, body) in enumerate([] if at_once else published, 1):
                ground.publish(body, delay=LONG, message_id=message_id)
                await_settled(ingress, number)
            await_settled(ingress, 5)
            assert (ingress.health().stored, ingress.health().repeated) == (2, 3)
        assert sorted(each.body for each in delivery.list().messages) == [b"x", b"y"]
        assert ground.depth(QUEUE) == 0
        assert "messages that were delivered already, such as 'invoice-" in caplog.text


def test_by_default_they_are_delivered_again(ground: Ground, sqlite_url: str) -> None:
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url) as ingress:
        deliver(delivery, "invoice-7")
        ground.publish(b"again", delay=LONG, message_id="invoice-7")
        await_settled(ingress, 1)
        assert delivery.count() == 1


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
@pytest.mark.parametrize("rule", ["both", "replace"])
def test_a_message_that_is_just_being_delivered(
    ground: Ground, request: pytest.FixtureRequest, database: str, rule: str
) -> None:
    with endpoint(request.getfixturevalue(f"{database}_url")) as delivery:
        store = deliver(delivery, "before")
        with running(delivery, ground.url, on_repeat="drop", on_duplicate=rule) as ingress:
            with store.transaction() as bound:
                bound.remove_ended(claim(bound, store, "invoice-7"), Ending.DELIVERED, bound.now())
                ground.publish(b"first", delay=LONG, message_id="invoice-7")
                time.sleep(1)
                assert ingress.health().repeated == 0
            await_settled(ingress, 1)
            assert (ingress.health().stored, ingress.health().repeated) == (0, 1)
        assert delivery.count() == 0


@pytest.mark.long
def test_without_a_history_they_are_delivered_with_a_warning(
    ground: Ground, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url, on_repeat="drop") as ingress:
        ground.publish(b"a", delay=LONG, message_id="a")
        await_settled(ingress, 1)
        assert "delivering repeated messages, although on_repeat is drop" in caplog.text
        deliver(delivery, "invoice-7")
        numbers = iter(range(2, 1000))

        def is_dropped() -> bool:
            ground.publish(b"again", delay=LONG, message_id="invoice-7")
            await_settled(ingress, next(numbers))
            delivery.cancel("invoice-7")
            return ingress.health().repeated > 0

        wait_until(is_dropped, "it notices the history", 30)
        assert caplog.text.count("delivering repeated messages") == 1


def test_a_store_that_keeps_no_history_is_refused() -> None:
    class Plain(ManagedDelayedMessageStore):
        """A store of another author."""

    Plain.__abstractmethods__ = frozenset()
    delivery = DelayedDelivery("sales", Plain())  # type: ignore[abstract]
    with pytest.raises(ConfigurationError, match="keeps no history, which on_repeat drop needs"):
        Ingress(delivery, "amqp://nowhere", rules(), IngressSettings(queue="q", on_repeat="drop"))
