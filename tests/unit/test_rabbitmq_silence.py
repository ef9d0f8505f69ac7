"""A broker that falls silent, or answers for another name: no wait is without end. No real broker does it on demand."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

import pika
import pytest
from pika import spec

from delaystore.cascades.moving._connection import open_raw
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.errors import TransportUnavailableError
from delaystore.message import DelayedMessage
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.transports import RabbitMQTransport
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare_part
from delaystore.transports.rabbitmq.native import FixedDelay
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.retry import retry_later
from delaystore.transports.rabbitmq.topology import Binding, DestinationKind, Exchange, Queue
from tests.servers.scripted_broker import HANDSHAKE, Answer, ScriptedBroker

LONG = 60.0
SHORT = 0.2
SECOND = timedelta(seconds=1)
T = TypeVar("T")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short deadlines in place of ours."""
    package = "delaystore.transports.rabbitmq"
    for name in ("punctual.ANSWER", "blocking.ANSWER", "blocking.OPENING", "_transport.PREPARING", "retry.ANSWER"):
        monkeypatch.setattr(f"{package}.{name}", SHORT)
    monkeypatch.setattr(f"{package}.owner.SILENCE_SECONDS", SHORT)


def ended(what: Callable[[], T], broker: ScriptedBroker) -> T:
    """What `what` returns or raises; where it waits without end, closing the broker ends it."""
    with ThreadPoolExecutor(1) as executor, broker:
        return executor.submit(what).result(LONG)


def scripted(answers: Mapping[type, Answer] | None = None) -> ScriptedBroker:
    return ScriptedBroker({**HANDSHAKE, **(answers or {})})


def another_name(declare: Any) -> Any:
    return spec.Queue.DeclareOk("another", 0, 0)


REQUESTS: dict[str, Callable[[Any], object]] = {
    "queue": lambda channel: declare_part(channel, Queue("q")),
    "exchange": lambda channel: declare_part(channel, Exchange("x")),
    "queue's binding": lambda channel: declare_part(channel, Binding("x", "q", DestinationKind.QUEUE)),
    "exchange's binding": lambda channel: declare_part(channel, Binding("x", "y", DestinationKind.EXCHANGE)),
    "look-up": lambda channel: channel.queue_declare("q", passive=True),
    "deletion": lambda channel: channel.queue_delete("q"),
    "consumer": lambda channel: channel.basic_consume("q", print),
    "get": lambda channel: channel.basic_get("q"),
    "qos": lambda channel: channel.basic_qos(prefetch_count=1),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_request_without_an_answer_ends(request_: Callable[[Any], object]) -> None:
    broker = scripted()

    def ask() -> None:
        connections = BlockingConnections(broker_from_url(broker.url), answer=SHORT)
        with (
            pytest.raises(TransportUnavailableError, match=r"no answer within 0\.2 s"),
            connections.channel() as channel,
        ):
            request_(channel)

    ended(ask, broker)


@pytest.mark.parametrize("method", [spec.Channel.Open, spec.Channel.Close])
def test_a_channel_that_is_not_opened_or_closed_is_given_up(method: type) -> None:
    broker = ScriptedBroker({kind: answer for kind, answer in HANDSHAKE.items() if kind is not method})

    def ask() -> None:
        connections = BlockingConnections(broker_from_url(broker.url))
        if method is spec.Channel.Close:
            with connections.channel():
                pass
        else:
            with pytest.raises(TransportUnavailableError), connections.channel():
                pass
        connections.close()

    ended(ask, broker)


@pytest.mark.parametrize("answers", [{}, {spec.Queue.Declare: another_name}], ids=["silent", "another name"])
def test_declaring_and_receiving_end_whatever_the_answer(answers: Mapping[type, Answer]) -> None:
    broker = scripted(answers)

    def ask() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            for call in (transport.declare, transport.delete):
                with pytest.raises(TransportUnavailableError, match="no answer"):
                    call("q")
            with pytest.raises(TransportUnavailableError, match="no answer"), transport.receive("q"):
                pass

    ended(ask, broker)


def test_waiting_for_messages_may_last_longer_than_an_answer() -> None:
    tag = {spec.Basic.Consume: lambda consume: spec.Basic.ConsumeOk(consume.consumer_tag)}
    cancelled = {spec.Basic.Cancel: lambda cancel: spec.Basic.CancelOk(cancel.consumer_tag)}
    qos = {spec.Basic.Qos: lambda _: spec.Basic.QosOk()}
    broker = scripted(
        {**tag, **cancelled, **qos, spec.Queue.Declare: lambda ask: spec.Queue.DeclareOk(ask.queue, 0, 0)}
    )

    def receive() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport, transport.receive("q", timeout=3 * SHORT) as messages:
            assert messages == []

    ended(receive, broker)


@pytest.mark.parametrize("greets", [True, False])
def test_a_handshake_that_stops_is_an_outage(greets: bool) -> None:
    broker = ScriptedBroker({}, greets=greets)

    def connect() -> None:
        with pytest.raises(TransportUnavailableError, match="cannot be reached"):
            open_raw(broker_from_url(f"{broker.url}?connection_timeout=1"))

    ended(connect, broker)


def test_a_moving_connection_gives_up_too() -> None:
    broker = scripted()

    def ask() -> None:
        channel = open_raw(broker_from_url(broker.url)).channel()
        with pytest.raises(pika.exceptions.AMQPError, match="no answer"):
            channel.basic_qos(prefetch_count=1)

    ended(ask, broker)


def test_a_consumer_that_retries_gives_up_too() -> None:
    broker = scripted()

    def retry() -> None:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        method = spec.Basic.Deliver("tag", 1, False, "", "q")
        with pytest.raises(TransportUnavailableError, match="no answer"):
            retry_later(connection.channel(), method, pika.BasicProperties(), b"", 1, queue="q")

    ended(retry, broker)


@pytest.fixture
def acknowledging() -> Mapping[type, Answer]:
    """Answers of a broker that confirms what is published, and knows all queues but `odd`."""
    tags = count(1)
    return {
        spec.Confirm.Select: lambda _: spec.Confirm.SelectOk(),
        spec.Basic.Publish: lambda _: spec.Basic.Ack(next(tags)),
        spec.Exchange.Declare: lambda _: spec.Exchange.DeclareOk(),
        spec.Queue.Bind: lambda _: spec.Queue.BindOk(),
        spec.Queue.Declare: lambda ask: (
            None if ask.nowait else spec.Queue.DeclareOk("another" if ask.queue == "odd" else ask.queue, 0, 0)
        ),
    }


def test_a_queue_whose_name_is_answered_wrongly_holds_up_no_other(acknowledging: Mapping[type, Answer]) -> None:
    broker = scripted(acknowledging)

    def hand_over() -> list[OutcomeKind]:
        with closing(RabbitMQTransport(broker.url, delays=FixedDelay(SECOND))) as transport:
            now = datetime.now(UTC)
            batch = [
                DelayedMessage(message_id=name, destination=name, due_time=now + SECOND, body=b"")
                for name in ("good", "odd", "fine")
            ]
            return [outcome.kind for outcome in transport.send_delayed(batch, now, LONG)]

    assert ended(hand_over, broker) == [OutcomeKind.DELIVERED, OutcomeKind.UNSUITED, OutcomeKind.DELIVERED]


def test_a_connection_whose_channel_stays_silent_gives_way_to_a_fresh_one(acknowledging: Mapping[type, Answer]) -> None:
    opened = count()
    silent = {
        spec.Channel.Open: lambda _: None if next(opened) == 0 else spec.Channel.OpenOk(),
        spec.Channel.Close: lambda _: None,
    }
    broker = scripted({**acknowledging, **silent})
    message = DelayedMessage(message_id="a", destination="q", due_time=datetime.now(UTC), body=b"")

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            (first,) = transport.send([message], None, SHORT)
            assert first.kind is OutcomeKind.UNSETTLED
            (second,) = transport.send([message], None, LONG)
            assert second.kind is OutcomeKind.DELIVERED

    ended(send, broker)


def test_an_error_queue_that_is_not_declared_in_time_stops_no_dispatching(
    acknowledging: Mapping[type, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.punctual.ANSWER", LONG)
    monkeypatch.setattr("delaystore.transports.rabbitmq.blocking.ANSWER", LONG)
    monkeypatch.setattr("delaystore.dispatcher._declaration.GRACE", SHORT)
    broker = scripted({**acknowledging, spec.Queue.Declare: lambda _: None})
    store = InMemoryDelayedMessageStore()

    def dispatch() -> str | None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            dispatcher = Dispatcher(store, transport, endpoint="sales")
            for name in "ab":
                store.store(DelayedMessage(message_id=name, destination="q", due_time=datetime.now(UTC), body=b""))
                assert dispatcher.dispatch_due().delivered == 1
            return dispatcher.health().error_queue

    assert "no answer" in (ended(dispatch, broker) or "")
