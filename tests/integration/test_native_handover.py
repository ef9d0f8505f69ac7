"""Handing messages over to RabbitMQ's native delays, before they are due or at once; on a real broker."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest
from sqlalchemy import text

from delaystore import DelayedDelivery, DelayedDeliverySettings
from delaystore.dispatcher import Dispatcher
from delaystore.errors import ConfigurationError, TransportSetupError, TransportUnavailableError
from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore
from delaystore.testing import RecordingTransport
from delaystore.text import EXPIRATION
from delaystore.transports import RabbitMQTransport
from delaystore.transports.abc import Outcome, OutcomeKind, ReceivedMessage
from delaystore.transports.rabbitmq.delay_headers import DELAY_IN_SECONDS, due_time
from delaystore.transports.rabbitmq.native import (
    _OWN_LAYOUT,
    CascadeDelay,
    DelayedMessagePluginDelay,
    EphemeralQueueDelay,
    FixedDelay,
    NativeDelay,
)
from delaystore.transports.rabbitmq.queues import queue_exists
from delaystore.transports.rabbitmq.topology import CascadeTopology, custom
from tests.dispatching import wait_until
from tests.integration.cascades import channel_to, ready
from tests.integration.cli import CommandLine
from tests.servers import RabbitMQ, RabbitMQVhosts

MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
HORIZON = timedelta(hours=1)
PATIENCE = 30
CASCADE = custom("test", levels=22, unit=MILLISECOND)
"""Up to an hour and ten minutes, in milliseconds: exact, so that tests are short."""


@pytest.fixture
def transport(rabbitmq_url: str) -> Iterator[RabbitMQTransport]:
    with closing(RabbitMQTransport(rabbitmq_url, delays=CASCADE, queue_type="classic")) as opened:
        for queue in ("billing", "error"):
            opened.declare(queue)
        yield opened


@pytest.fixture
def delivery(sqlite_url: str, transport: RabbitMQTransport) -> Iterator[DelayedDelivery]:
    settings = DelayedDeliverySettings(handover_horizon=HORIZON, poll_interval=0.05)
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url), transport, settings)) as made:
        yield made


def received(transport: RabbitMQTransport, queue: str, count: int) -> list[tuple[ReceivedMessage, datetime]]:
    """The first `count` messages of the queue, and when each came."""
    found: list[tuple[ReceivedMessage, datetime]] = []
    end = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < end:
        with transport.receive(queue, 1, 1) as messages:
            found += [(message, datetime.now(UTC)) for message in messages]
    return found


def waiting(url: str, queue: str) -> int:
    with channel_to(url) as channel:
        return ready(channel, queue)


def message(due: datetime, **fields: Any) -> DelayedMessage:
    return DelayedMessage(**{"message_id": "a", "destination": "billing", "body": b"pay", "due_time": due, **fields})


def outcomes(transport: RabbitMQTransport, delay: timedelta, *messages: dict[str, Any]) -> Sequence[OutcomeKind]:
    now = datetime.now(UTC)
    batch = [message(now + delay, message_id=str(at), **fields) for at, fields in enumerate(messages)]
    return [outcome.kind for outcome in transport.send_delayed(batch, now, PATIENCE)]


def test_messages_leave_the_store_before_they_are_due_and_arrive_when_they_are(
    delivery: DelayedDelivery, transport: RabbitMQTransport
) -> None:
    now = datetime.now(UTC)
    due = {f"{n}": now + timedelta(seconds=6 + n / 2) for n in (6, 4, 5)}
    with delivery:
        for message_id, at in due.items():
            delivery.send("billing", b"pay", at=at, message_id=message_id, headers={"kind": "reminder"})
        wait_until(lambda: delivery.count() == 0)
        assert datetime.now(UTC) < min(due.values()), "the machine was too slow for this test"
        arrived = received(transport, "billing", 3)
    assert [one.message_id for one, _ in arrived] == ["4", "5", "6"]
    for one, at in arrived:
        assert at >= due[one.message_id]
        assert one.headers["kind"] == "reminder"
        assert due_time(one.headers) is not None
        assert timedelta(0) <= due_time(one.headers) - due[one.message_id] < SECOND  # type: ignore[operator]


def test_what_is_beyond_the_horizon_stays_in_the_store(delivery: DelayedDelivery) -> None:
    with delivery:
        delivery.send("billing", b"", delay=HORIZON + timedelta(minutes=5))
        delivery.send("billing", b"", delay=2)
        wait_until(lambda: delivery.count() == 1)


@pytest.mark.long
def test_a_message_whose_queue_does_not_exist_yet_stays_until_it_is_due(
    delivery: DelayedDelivery, transport: RabbitMQTransport
) -> None:
    with delivery:
        delivery.send("later", b"pay", delay=5, message_id="a")
        wait_until(lambda: (found := delivery.get("a")) is not None and found.next_attempt > found.due_time)
        transport.declare("later")
        ((arrived, _),) = received(transport, "later", 1)
    assert DELAY_IN_SECONDS not in arrived.headers


def test_what_cannot_be_delayed_natively_stays_until_it_is_due(
    delivery: DelayedDelivery, transport: RabbitMQTransport
) -> None:
    due = datetime.now(UTC) + 2 * SECOND
    with delivery:
        message_id = delivery.send("/exchanges/amq.direct/key", b"", at=due)
        wait_until(lambda: (found := delivery.get(message_id)) is not None and found.next_attempt)
        found = delivery.get(message_id)
        assert found is not None
        assert found.due_time == due
        ((failed, at),) = received(transport, "error", 1)  # nothing is bound there
    assert at >= due
    assert "NO_ROUTE" in failed.headers["NServiceBus.ExceptionInfo.Message"]


def test_a_stored_name_with_a_line_break_holds_up_no_other(
    sqlite_url: str, transport: RabbitMQTransport, rabbitmq_url: str
) -> None:
    store = SqlDelayedMessageStore(sqlite_url)
    settings = DelayedDeliverySettings(handover_horizon=HORIZON)
    with closing(store):
        dispatcher = Dispatcher(store, transport, settings, endpoint="sales")
        store.setup_infrastructure()
        due = store.now() + SECOND
        fields = {"plain": "billing", "encoded": "/queues/bil%0Aling", "good": "billing"}
        store.store_many([message(due, message_id=name, destination=to) for name, to in fields.items()])
        with store.engine.begin() as connection:  # as an earlier version stored it
            change = "UPDATE sales_delayed SET destination = :name WHERE message_id = 'plain'"
            connection.execute(text(change), {"name": "bil\nling"})
        wait_until(lambda: dispatcher.dispatch_due().fetched == 0 and store.count() == 0)
    assert [one.message_id for one, _ in received(transport, "billing", 1)] == ["good"]
    failed = {
        one.message_id: one.headers["NServiceBus.ExceptionInfo.Message"] for one, _ in received(transport, "error", 2)
    }
    assert failed.keys() == {"plain", "encoded"}
    assert all("control character" in reason for reason in failed.values())
    assert waiting(rabbitmq_url, "billing") == 0


def test_a_name_with_a_line_break_is_refused_and_asked_of_no_broker(transport: RabbitMQTransport) -> None:
    for name in ("bil\nling", "/queues/bil%0Aling"):  # the broker would answer for `billing`
        with pytest.raises(TransportSetupError, match="control character"):
            transport.declare(name)
        with pytest.raises(TransportSetupError, match="control character"):
            transport.delete(name)
        with pytest.raises(TransportSetupError, match="control character"), transport.receive(name):
            pass
    assert not queue_exists(transport._blocking, "bil\nling")
    for made in (
        lambda: FixedDelay(SECOND, "a\n"),
        lambda: EphemeralQueueDelay("a\r"),
        lambda: CascadeDelay(custom("\n")),
    ):
        with pytest.raises(ConfigurationError, match="control character"):
            made()


@pytest.mark.long
def test_what_the_cascade_refuses_stays_until_it_is_due_and_then_goes_directly(
    sqlite_url: str, rabbitmq_url: str, transport: RabbitMQTransport
) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish", "x-queue-type": "classic"}
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        channel = connection.channel()
        channel.queue_declare("test.delay-level-11", durable=True, arguments=full)
        channel.basic_publish("", "test.delay-level-11", b"")
        channel.exchange_declare("test.delay-level-11", "topic", durable=True)
        channel.queue_bind("test.delay-level-11", "test.delay-level-11", "#")
        channel.exchange_declare(CASCADE.delivery, "topic", durable=True)

    class Prepared(CascadeDelay):
        def prepare(self, *arguments: Any) -> dict[str, str]:
            return {}  # the level is there, though not as the cascade would declare it

    store = SqlDelayedMessageStore(sqlite_url)
    settings = DelayedDeliverySettings(handover_horizon=HORIZON, number_of_retries=0)
    with closing(RabbitMQTransport(rabbitmq_url, delays=Prepared(CASCADE))) as refusing, closing(store):
        dispatcher = Dispatcher(store, refusing, settings, endpoint="sales")
        store.setup_infrastructure()
        due = store.now() + 4000 * MILLISECOND  # level 11 from 2,048 on
        store.store_many([message(due), message(due, message_id="b")])
        dispatcher.dispatch_due()
        assert dispatcher.dispatch_due().fetched == 0
        waiting_ones = store.list().messages
        assert [one.next_attempt for one in waiting_ones] == [due + HORIZON] * len(waiting_ones)
        assert len(waiting_ones) >= 1
        wait_until(lambda: dispatcher.dispatch_due().delivered)
        assert store.count() == 0
    assert received(transport, "billing", 1)
    assert waiting(rabbitmq_url, "error") == 0


def test_an_outage_makes_nothing_late_that_was_to_be_handed_over(sqlite_url: str) -> None:
    unconfirmed = Outcome(OutcomeKind.UNCONFIRMED, "no answer")
    store = SqlDelayedMessageStore(sqlite_url)

    class Delaying(RecordingTransport):
        longest_native_delay = HORIZON

        def send_delayed(self, messages: Sequence[DelayedMessage], now: datetime, timeout: float) -> Sequence[Outcome]:
            return [unconfirmed] * len(messages)

    transport = Delaying()
    transport.declare("billing")
    with closing(store):
        dispatcher = Dispatcher(store, transport, DelayedDeliverySettings(handover_horizon=HORIZON), endpoint="sales")
        store.setup_infrastructure()
        due = store.now() + 2 * SECOND
        store.store_many([message(store.now(), message_id="now"), message(due, message_id="soon")])
        assert dispatcher.dispatch_due().delivered == 1  # so that it is no outage, and the other gives way
        found = store.get("soon")
        assert found is not None
        assert found.next_attempt == due + HORIZON


def test_a_cascade_that_is_declared_again_is_bound_again(transport: RabbitMQTransport, rabbitmq_url: str) -> None:
    assert outcomes(transport, MILLISECOND, {}) == [OutcomeKind.DELIVERED]
    assert received(transport, "billing", 1)
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        connection.channel().exchange_delete(CASCADE.delivery)
    assert transport._delays is not None
    del transport._delays._prepared[_OWN_LAYOUT]  # as time does, sooner for it than for the queue
    assert outcomes(transport, MILLISECOND, {}) == [OutcomeKind.DELIVERED]
    assert received(transport, "billing", 1)


def test_an_expiration_is_kept_in_a_header(transport: RabbitMQTransport) -> None:
    old = {"x-death": [{"queue": "billing"}], "x-first-death-queue": "billing", "kind": "reminder"}
    outcomes(transport, MILLISECOND, {})  # declares the cascade, which may take longer than a second
    received(transport, "billing", 1)
    fields = {"properties": {"expiration": "1", "priority": 3}, "headers": old}
    assert outcomes(transport, SECOND, fields) == [OutcomeKind.DELIVERED]
    ((arrived, _),) = received(transport, "billing", 1)
    assert arrived.headers[EXPIRATION] == "1"
    assert "expiration" not in arrived.properties
    assert arrived.properties["priority"] == 3
    assert arrived.headers["x-first-death-queue"] != "billing"
    assert arrived.headers["kind"] == "reminder"


def test_the_delay_counts_from_an_older_time_sent(transport: RabbitMQTransport) -> None:
    headers = {"NServiceBus.TimeSent": f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%d %H:%M:%S:%f} Z"}
    assert outcomes(transport, SECOND, {"headers": headers}) == [OutcomeKind.DELIVERED]
    ((arrived, _),) = received(transport, "billing", 1)
    assert arrived.headers[DELAY_IN_SECONDS] == 3602
    assert arrived.headers["NServiceBus.TimeSent"] == headers["NServiceBus.TimeSent"]


def test_native_sends_skip_the_store(sqlite_url: str, transport: RabbitMQTransport, rabbitmq_url: str) -> None:
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url), transport, native=True)) as delivery:
        sent = delivery.send("billing", b"pay", delay=1)
        many = [message(datetime.now(UTC) + SECOND, message_id=f"m{n}") for n in range(3)]
        far = message(datetime.now(UTC) + CASCADE.maximum + timedelta(minutes=1), message_id="far")
        assert delivery.send_many([*many, far]) == 4
        delivery.send("billing", b"", delay=60, message_id="kept", headers={"CC": ["other"]})
        delivery.send("/exchanges/amq.direct/key", b"", delay=60, message_id="exchange")
        delivery.send("billing", b"", delay=0, message_id="due")
        assert sorted(one.message_id for one in delivery.list().messages) == ["due", "exchange", "far", "kept"]
        assert {one.message_id for one, _ in received(transport, "billing", 4)} == {sent, "m0", "m1", "m2"}
        assert waiting(rabbitmq_url, "test.undeliverable") == 0


def test_native_sends_go_to_the_store_while_the_broker_is_away(sqlite_url: str) -> None:
    away = RabbitMQTransport("amqp://127.0.0.1:1", delays=CASCADE)
    settings = DelayedDeliverySettings(dispatch_timeout=0.2)
    store = SqlDelayedMessageStore(sqlite_url)
    with closing(DelayedDelivery("sales", store, away, settings, native=True)) as delivery:
        message_id = delivery.send("billing", b"pay", delay=60)
        assert delivery.get(message_id) is not None
        with pytest.raises(TransportUnavailableError):
            Dispatcher(store, away, settings).dispatch_due()


def test_without_the_right_to_declare_messages_stay_in_the_store(
    rabbitmq: RabbitMQVhosts, rabbitmq_url: str, sqlite_url: str
) -> None:
    with closing(RabbitMQTransport(rabbitmq_url)) as owner:
        owner.declare("billing")
    with (
        rabbitmq.user(rabbitmq_url, write=".*", read=".*") as url,
        closing(RabbitMQTransport(url, delays=CASCADE)) as poor,
    ):
        (outcome,) = poor.send_delayed([message(datetime.now(UTC) + SECOND)], datetime.now(UTC), PATIENCE)
    assert outcome.kind is OutcomeKind.NOT_DELAYABLE
    assert "cannot be declared" in outcome.reason


def test_a_queue_that_may_not_be_bound_harms_no_other(
    rabbitmq: RabbitMQVhosts, rabbitmq_url: str, transport: RabbitMQTransport
) -> None:
    transport.declare("locked")
    with (
        rabbitmq.user(rabbitmq_url, configure=".*", write="^(?!locked)", read=".*") as url,
        closing(RabbitMQTransport(url, delays=CASCADE)) as poor,
    ):
        assert outcomes(poor, SECOND, {"destination": "locked"}, {}) == [
            OutcomeKind.NOT_DELAYABLE,
            OutcomeKind.DELIVERED,
        ]


def test_a_queue_that_may_not_be_bound_to_the_plugin_s_exchange_harms_no_other(
    rabbitmq: RabbitMQVhosts, rabbitmq_url: str, transport: RabbitMQTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.native.EXCHANGE_TYPE", "direct")  # one that is there
    transport.declare("locked")
    with (
        rabbitmq.user(rabbitmq_url, configure=".*", write="^(?!locked)", read=".*") as url,
        closing(RabbitMQTransport(url, delays=DelayedMessagePluginDelay())) as poor,
    ):
        assert outcomes(poor, SECOND, {"destination": "locked"}, {}) == [
            OutcomeKind.NOT_DELAYABLE,
            OutcomeKind.DELIVERED,
        ]


@pytest.fixture(params=["cascade", "plugin", "fixed", "ephemeral"])
def delays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CascadeTopology | NativeDelay:
    """Each way of delaying. In place of the plugin's exchange there is one that routes at once."""
    monkeypatch.setattr("delaystore.transports.rabbitmq.native.EXCHANGE_TYPE", "direct")
    made: dict[str, CascadeTopology | NativeDelay] = {
        "cascade": CASCADE,
        "plugin": DelayedMessagePluginDelay(),
        "fixed": FixedDelay(SECOND),
        "ephemeral": EphemeralQueueDelay(),
    }
    return made[request.param]


@pytest.mark.long_runs("fixed", "ephemeral")
def test_a_queue_that_was_declared_anew_gets_what_is_sent_next(
    rabbitmq_url: str, delays: CascadeTopology | NativeDelay
) -> None:
    with closing(RabbitMQTransport(rabbitmq_url, delays=delays, queue_type="classic")) as transport:
        for _ in range(3):
            transport.declare("billing")
            assert outcomes(transport, SECOND, {}) == [OutcomeKind.DELIVERED]
            assert received(transport, "billing", 1)
            transport.delete("billing")


@pytest.mark.long_runs("fixed", "ephemeral")
def test_a_queue_that_was_deleted_a_moment_ago_is_noticed_before_anything_is_published(
    rabbitmq_url: str, delays: CascadeTopology | NativeDelay
) -> None:
    with closing(RabbitMQTransport(rabbitmq_url, delays=delays, queue_type="classic")) as transport:
        for queue in ("billing", "shipping"):
            transport.declare(queue)
        there, gone = {"destination": "shipping"}, {"destination": "billing"}
        assert outcomes(transport, SECOND, there, gone) == [OutcomeKind.DELIVERED] * 2
        transport.delete("billing")
        assert OutcomeKind.DELIVERED not in outcomes(transport, SECOND, gone)
        assert outcomes(transport, SECOND, there, gone) == [OutcomeKind.DELIVERED, OutcomeKind.NOT_DELAYABLE]
        assert len(received(transport, "shipping", 2)) == 2


def test_what_has_no_queue_when_the_plugin_delivers_it_is_kept(
    rabbitmq_url: str, transport: RabbitMQTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.native.EXCHANGE_TYPE", "direct")
    with closing(RabbitMQTransport(rabbitmq_url, delays=DelayedMessagePluginDelay("later"))) as delaying:
        assert outcomes(delaying, SECOND, {}) == [OutcomeKind.DELIVERED]
        transport.delete("billing")
        with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
            connection.channel().basic_publish("later", "billing", b"due now")  # as the plugin does
        ((kept, _),) = received(transport, "later.undeliverable", 1)
        assert kept.body == b"due now"


def test_messages_of_one_id_are_not_taken_for_one_another(sqlite_url: str, transport: RabbitMQTransport) -> None:
    store = SqlDelayedMessageStore(sqlite_url)
    with closing(DelayedDelivery("sales", store, transport, native=True)) as delivery:
        now = datetime.now(UTC)
        twins = [message(now + SECOND), message(now + 2 * HORIZON, destination="other")]
        assert delivery.send_many(twins) == 2
        found = delivery.get("a")
        assert found is not None
        assert found.destination == "other"


def test_what_waits_natively_is_persistent(transport: RabbitMQTransport) -> None:
    assert outcomes(transport, SECOND, {"properties": {"delivery_mode": 1}}) == [OutcomeKind.DELIVERED]
    ((arrived, _),) = received(transport, "billing", 1)
    assert arrived.properties["delivery_mode"] == 2


@pytest.mark.long
def test_a_silent_broker_holds_up_no_send_for_long(private_rabbitmq: RabbitMQ) -> None:
    url = private_rabbitmq.create_vhost()
    with closing(RabbitMQTransport(url, delays=CASCADE)) as transport:
        transport.declare("billing")
        transport.declare("shipping")
        assert outcomes(transport, SECOND, {}) == [OutcomeKind.DELIVERED]
        private_rabbitmq.pause()
        began = time.monotonic()
        now = datetime.now(UTC)
        (outcome,) = transport.send_delayed([message(now + SECOND, destination="shipping")], now, 1)
        assert outcome.kind is OutcomeKind.UNCONFIRMED
        assert time.monotonic() - began < PATIENCE
        private_rabbitmq.resume()


@pytest.mark.long_runs(after=1)
@pytest.mark.parametrize("delays", [FixedDelay(1500 * MILLISECOND), EphemeralQueueDelay()], ids=["fixed", "ephemeral"])
def test_other_ways_of_delaying(rabbitmq_url: str, delays: NativeDelay) -> None:
    with closing(RabbitMQTransport(rabbitmq_url, delays=delays)) as transport:
        transport.declare("billing")
        transport.declare("a.b c é")
        due = datetime.now(UTC) + 1500 * MILLISECOND
        fields: list[dict[str, Any]] = [{}, {"destination": "a.b c é"}, {"destination": "nowhere"}]
        kinds = outcomes(transport, 1500 * MILLISECOND, *fields)
        assert kinds == [OutcomeKind.DELIVERED, OutcomeKind.DELIVERED, OutcomeKind.NOT_DELAYABLE]
        for queue in ("billing", "a.b c é"):
            ((_, at),) = received(transport, queue, 1)
            assert at >= due


def test_a_queue_for_each_message_takes_what_is_overdue_and_not_what_is_too_long(rabbitmq_url: str) -> None:
    with closing(RabbitMQTransport(rabbitmq_url, delays=EphemeralQueueDelay())) as transport:
        transport.declare("billing")
        now = datetime.now(UTC)
        batch = [message(now - SECOND, message_id="overdue"), message(now + timedelta(days=50), message_id="too long")]
        taken, refused = transport.send_delayed(batch, now, PATIENCE)
        assert taken.kind is OutcomeKind.DELIVERED
        assert refused.kind is OutcomeKind.NOT_DELAYABLE
        assert "at most 49 days" in refused.reason
        ((arrived, _),) = received(transport, "billing", 1)
        assert arrived.message_id == "overdue"


def test_a_fixed_delay_goes_with_native_sends(rabbitmq_url: str, sqlite_url: str) -> None:
    with closing(RabbitMQTransport(rabbitmq_url, delays=FixedDelay(30 * SECOND))) as transport:
        transport.declare("billing")
        with closing(DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url), transport, native=True)) as delivery:
            delivery.send("billing", b"", delay=30)
            delivery.send("billing", b"", delay=20)
            assert delivery.count() == 1


def test_a_time_sent_in_the_future_is_replaced(transport: RabbitMQTransport) -> None:
    headers = {"NServiceBus.TimeSent": f"{datetime.now(UTC) + HORIZON:%Y-%m-%d %H:%M:%S:%f} Z"}
    assert outcomes(transport, SECOND, {"headers": headers}) == [OutcomeKind.DELIVERED]
    ((arrived, at),) = received(transport, "billing", 1)
    written = due_time(arrived.headers)
    assert written is not None
    assert abs(written - at) < PATIENCE * SECOND


def test_a_fixed_delay_refuses_others(rabbitmq_url: str) -> None:
    with closing(RabbitMQTransport(rabbitmq_url, delays=FixedDelay(SECOND))) as transport:
        assert outcomes(transport, 2 * SECOND, {}) == [OutcomeKind.NOT_DELAYABLE]


def test_the_plugin_that_is_not_there_is_named(rabbitmq_url: str) -> None:
    with closing(RabbitMQTransport(rabbitmq_url, delays=DelayedMessagePluginDelay())) as transport:
        transport.declare("billing")
        now = datetime.now(UTC)
        batch = [message(now + SECOND), message(now + timedelta(days=50), message_id="b")]
        missing, _ = transport.send_delayed(batch, now, PATIENCE)
        assert missing.kind is OutcomeKind.NOT_DELAYABLE
        assert "rabbitmq_delayed_message_exchange enabled" in missing.reason
        (refused,) = transport.send_delayed(batch[1:], now, PATIENCE)
        assert refused.kind is OutcomeKind.NOT_DELAYABLE
        assert "at most 49 days" in refused.reason


def test_a_deleted_cascade_is_declared_again(rabbitmq_url: str, transport: RabbitMQTransport) -> None:
    assert outcomes(transport, SECOND, {}) == [OutcomeKind.DELIVERED]
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        for exchange in CASCADE.layout().exchanges:
            connection.channel().exchange_delete(exchange.name)
    assert outcomes(transport, SECOND, {}) == [OutcomeKind.UNCONFIRMED]
    assert outcomes(transport, SECOND, {}) == [OutcomeKind.DELIVERED]


def test_native_delays_that_are_switched_off_are_not_used(sqlite_url: str, rabbitmq_url: str) -> None:
    plain = RabbitMQTransport(rabbitmq_url)
    with pytest.raises(ConfigurationError, match="has no native delay"):
        plain.send_delayed([message(datetime.now(UTC))], datetime.now(UTC), 1)
    store = InMemoryDelayedMessageStore()
    with pytest.raises(ConfigurationError, match="native=True needs a transport with native delays"):
        DelayedDelivery("sales", store, plain, native=True)
    with pytest.raises(ConfigurationError, match="native=True needs a transport"):
        DelayedDelivery("sales", store, native=True)
    with pytest.raises(ConfigurationError, match=r"handover_horizon 1:00:00 is longer than .* natively \(0:00:00\)"):
        DelayedDelivery("sales", store, plain, DelayedDeliverySettings(handover_horizon=HORIZON))
    plain.close()


def test_a_url_names_a_native_delay(rabbitmq_url: str) -> None:
    with closing(RabbitMQTransport(f"{rabbitmq_url}?delays=custom:mine:4&heartbeat=30")) as transport:
        assert transport.longest_native_delay == 15 * SECOND
    for name, longest in {"fixed:30": 30 * SECOND, "nservicebus-v2": 268_435_455 * SECOND}.items():
        assert RabbitMQTransport(f"{rabbitmq_url}?delays={name}").longest_native_delay == longest
    for name in ("fixed:", "fixed:-1", "fixed:soon", "never"):
        with pytest.raises(ConfigurationError, match=r"fixed delay|no cascade is called"):
            RabbitMQTransport(f"{rabbitmq_url}?delays={name}")


@pytest.mark.long
def test_a_store_is_emptied_before_its_messages_are_due_in_any_mode(
    sqlite_url: str, transport: RabbitMQTransport
) -> None:
    settings = DelayedDeliverySettings(handover_horizon=HORIZON, transaction_mode=TransactionMode.NONE)
    store = SqlDelayedMessageStore(sqlite_url)
    with closing(store):
        dispatcher = Dispatcher(store, transport, settings, endpoint="sales")
        store.setup_infrastructure()
        store.store_many([message(store.now() + SECOND, message_id=str(n)) for n in range(500)])
        assert dispatcher.dispatch_due().delivered == 500
        assert len({one.message_id for one, _ in received(transport, "billing", 500)}) == 500


def test_the_command_line_hands_over_and_sends_natively(
    sqlite_url: str, rabbitmq_url: str, transport: RabbitMQTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{rabbitmq_url}?delays=custom:test:22:ms"
    run = CommandLine(capsys, {})
    store = ("--store", sqlite_url, "--endpoint", "sales")
    assert (
        run("send", "billing", "native", "--delay", "1s", "--native", "--create", "--transport", url, *store).code == 0
    )
    assert run("send", "billing", "stored", "--delay", "2s", *store).code == 0
    assert run("count", *store).out.strip() == "1"
    done = run("dispatch", "--once", "--handover-horizon", "1m", "--transport", url, *store)
    assert done.err == "done: 1 delivered, 0 failed attempts, 0 moved to the error queue\n"
    assert run("count", *store).out.strip() == "0"
    assert [one.body for one, _ in received(transport, "billing", 2)] == [b"native", b"stored"]
    refused = run.refused("dispatch", "--once", "--handover-horizon", "1m", "--transport", rabbitmq_url, *store)
    assert "delays natively" in refused
    refused = run.refused("send", "billing", "--delay", "1", "--native", "--transport", rabbitmq_url, *store)
    assert "--native needs a --transport that delays natively" in refused
