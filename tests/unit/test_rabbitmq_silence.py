"""A broker that falls silent, or answers for another name: no wait is without end. No real broker does it on demand."""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

import pika
import pytest
from pika import spec

from delaystore.dispatcher import Dispatcher
from delaystore.errors import TransportUnavailableError
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.transports import RabbitMQTransport
from delaystore.transports.abc import OutcomeKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections, open_connection
from delaystore.transports.rabbitmq.declaring import declare_part
from delaystore.transports.rabbitmq.native import FixedDelay
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.retry import retry_later
from delaystore.transports.rabbitmq.topology import Binding, DestinationKind, Exchange, Queue
from tests.dispatching import wait_until
from tests.servers.scripted_broker import HANDSHAKE, Answer, ScriptedBroker

LONG = 60.0
SHORT = 0.2
SECOND = timedelta(seconds=1)
T = TypeVar("T")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short deadlines in place of ours."""
    package = "delaystore.transports.rabbitmq"
    for name in (
        "pika_internals.ANSWER",
        "blocking.ANSWER",
        "blocking.OPENING",
        "_transport.PREPARING",
        "retry.ANSWER",
    ):
        monkeypatch.setattr(f"{package}.{name}", SHORT)
    for name, seconds in {"QUIET": SHORT, "DOUBT": 2 * SHORT, "SILENCE_SECONDS": 5 * SHORT}.items():
        monkeypatch.setattr(f"{package}.owner.{name}", seconds)


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
            open_connection(broker_from_url(f"{broker.url}?connection_timeout=1"))

    ended(connect, broker)


def test_a_moving_connection_gives_up_too() -> None:
    broker = scripted()

    def ask() -> None:
        channel = open_connection(broker_from_url(broker.url)).channel()
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
    return {
        spec.Confirm.Select: lambda _: spec.Confirm.SelectOk(),
        spec.Basic.Publish: lambda method, tag, say: spec.Basic.Ack(tag),
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

    assert ended(hand_over, broker) == [OutcomeKind.DELIVERED, OutcomeKind.NOT_DELAYABLE, OutcomeKind.DELIVERED]


def a_message(destination: str) -> DelayedMessage:
    return DelayedMessage(message_id=destination, destination=destination, due_time=datetime.now(UTC), body=b"")


def test_a_broker_that_answers_nothing_is_given_up_for_a_fresh_connection(
    acknowledging: Mapping[type, Answer], caplog: pytest.LogCaptureFixture
) -> None:
    connections = count()
    frozen = {"is": False}

    def open_connection(_: Any) -> Any:
        frozen["is"] = next(connections) == 0
        return spec.Connection.OpenOk()

    silent = {
        spec.Connection.Open: open_connection,
        spec.Channel.Open: lambda _: None if frozen["is"] else spec.Channel.OpenOk(),
    }
    broker = scripted({**acknowledging, **silent})

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            (first,) = transport.send([a_message("a")], None, SHORT)
            assert first.kind is OutcomeKind.UNCONFIRMED
            assert first.late is None  # its channel was not even open
            assert "does not answer" in first.reason
            (second,) = transport.send([a_message("a")], None, LONG)
            assert second.kind is OutcomeKind.DELIVERED

    ended(send, broker)
    assert "no answer within 1 s; reconnecting" in caplog.text


def lonely(acknowledging: Mapping[type, Answer], held: list[Callable[[], None]]) -> ScriptedBroker:
    """A broker that confirms all but what is for the queue `silent`; `held` gets what confirms it."""

    def publish(method: Any, tag: int, say: Callable[[Any], None]) -> Any:
        ack = spec.Basic.Ack(tag)
        if method.routing_key == "silent":
            held.append(lambda: say(ack))
            return None
        return ack

    return ScriptedBroker({**HANDSHAKE, **acknowledging, spec.Basic.Publish: publish})


def test_a_late_confirm_is_heard(acknowledging: Mapping[type, Answer]) -> None:
    held: list[Callable[[], None]] = []
    broker = lonely(acknowledging, held)

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            (slow,) = transport.send([a_message("silent")], None, SHORT)
            assert (slow.kind, transport.unavailable()) == (OutcomeKind.UNAVAILABLE, None)
            assert slow.late is not None
            assert slow.late.arrived is None
            (other,) = transport.send([a_message("q")], None, LONG)
            assert other.kind is OutcomeKind.DELIVERED
            held.pop()()
            wait_until(lambda: slow.late is not None and slow.late.arrived)

    ended(send, broker)


def test_what_is_silent_holds_up_nothing_else_of_its_batch(acknowledging: Mapping[type, Answer]) -> None:
    broker = lonely(acknowledging, [])

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            outcomes = transport.send([a_message("q"), a_message("silent"), a_message("other")], None, 10 * LONG)
            delivered, unready = OutcomeKind.DELIVERED, OutcomeKind.UNAVAILABLE
            assert [outcome.kind for outcome in outcomes] == [delivered, unready, delivered]

    ended(send, broker)


def test_what_found_no_room_behind_the_silent_goes_by_another_channel(
    acknowledging: Mapping[type, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.channels.WINDOW", 4)
    broker = lonely(acknowledging, [])

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            names = ["q", "silent", "silent", "silent", "silent", "silent", "other"]
            outcomes = transport.send([a_message(name) for name in names], None, 10 * LONG)
            assert [outcome.kind is OutcomeKind.DELIVERED for outcome in outcomes] == [True, *[False] * 5, True]
            assert {outcome.kind for outcome in outcomes[1:6]} == {OutcomeKind.UNAVAILABLE}

    ended(send, broker)


@pytest.mark.parametrize("bound", ["ANSWER_TIMEOUT", "MOST_LEFT"])
def test_what_stays_silent_is_given_up_at_last(
    acknowledging: Mapping[type, Answer], monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(f"delaystore.transports.rabbitmq.channels.{bound}", 1)
    broker = lonely(acknowledging, [])

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            late = [transport.send([a_message("silent")], None, SHORT)[0].late for _ in range(2)]
            wait_until(lambda: late[0] is not None and late[0].arrived is False)
            assert transport.unavailable() is None

    ended(send, broker)


def test_a_channel_that_takes_longer_to_open_than_a_batch_waits_is_there_for_the_next(
    acknowledging: Mapping[type, Answer],
) -> None:
    opened: list[str] = []

    def select(_: Any) -> Any:
        opened.append("a channel")
        time.sleep(2 * SHORT)
        return spec.Confirm.SelectOk()

    broker = scripted({**acknowledging, spec.Confirm.Select: select})

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            wait_until(lambda: transport.unavailable() is None)
            (first,) = transport.send([a_message("q")], None, SHORT / 4)
            assert first.kind is not OutcomeKind.DELIVERED
            wait_until(lambda: transport.send([a_message("q")], None, SHORT / 4)[0].kind is OutcomeKind.DELIVERED)

    ended(send, broker)
    assert opened == ["a channel"]


def test_a_channel_that_never_opens_is_given_up_at_last(
    acknowledging: Mapping[type, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.channels.ANSWER_TIMEOUT", SHORT)
    asked = count()
    select = {spec.Confirm.Select: lambda _: None if next(asked) == 0 else spec.Confirm.SelectOk()}
    broker = scripted({**acknowledging, **select})

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            wait_until(lambda: transport.send([a_message("q")], None, SHORT)[0].kind is OutcomeKind.DELIVERED)

    ended(send, broker)


def test_closing_ends_what_is_on_its_way(acknowledging: Mapping[type, Answer]) -> None:
    broker = lonely(acknowledging, [])

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            (slow,) = transport.send([a_message("silent")], None, SHORT)
        assert slow.late is not None
        assert slow.late.arrived is False

    ended(send, broker)


def test_bytes_that_leave_slowly_are_no_silence(acknowledging: Mapping[type, Answer]) -> None:
    broker = ScriptedBroker({**HANDSHAKE, **acknowledging}, pace=1024 * 1024)
    large = replace(a_message("q"), body=bytes(4 * 1024 * 1024))

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            (slow,) = transport.send([large], None, 3 * SHORT)
            assert slow.kind is OutcomeKind.UNCONFIRMED
            assert slow.late is not None
            wait_until(lambda: slow.late is not None and slow.late.arrived is not None)
            assert slow.late.arrived

    ended(send, broker)


@pytest.mark.long_runs("bodies leave slowly")
@pytest.mark.parametrize("slowly", [False, True], ids=["confirms come late", "bodies leave slowly"])
def test_what_takes_longer_than_a_batch_waits_is_sent_once(acknowledging: Mapping[type, Answer], slowly: bool) -> None:
    published: list[str] = []

    def publish(method: Any, tag: int, say: Callable[[Any], None]) -> Any:
        published.append(method.routing_key)
        if slowly:
            return spec.Basic.Ack(tag)
        timer = threading.Timer(6 * SHORT, say, [spec.Basic.Ack(tag)])
        timer.start()
        return None

    answers = {**HANDSHAKE, **acknowledging, spec.Basic.Publish: publish}
    broker = ScriptedBroker(answers, pace=1024 * 1024 if slowly else None)
    settings = DelayedDeliverySettings(dispatch_timeout=timedelta(seconds=2 * SHORT), automatic_setup=False)

    def dispatch() -> None:
        store = InMemoryDelayedMessageStore()
        body = bytes(2 * 1024 * 1024 if slowly else 1)
        with closing(RabbitMQTransport(broker.url)) as transport:
            dispatcher = Dispatcher(store, transport, settings, endpoint="sales")
            store.store_many(replace(a_message(name), body=body) for name in ("a", "b"))
            dispatcher.start()
            try:
                wait_until(lambda: store.count() == 0)
            finally:
                assert dispatcher.stop(LONG)

    ended(dispatch, broker)
    assert sorted(published) == ["a", "b"]


class Interrupt(BaseException):
    """As of a worker's time limit."""


def test_an_interrupted_sender_leaves_nothing_behind_for_ever(
    acknowledging: Mapping[type, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.channels.ANSWER_TIMEOUT", SHORT)

    def interrupt(*_: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with lonely(acknowledging, []) as broker, closing(RabbitMQTransport(broker.url)) as transport:
            wait_until(lambda: transport.unavailable() is None)
            threading.Timer(SHORT, os.kill, [os.getpid(), signal.SIGUSR1]).start()
            with pytest.raises(Interrupt):
                transport.send([a_message("silent")], None, LONG)
            carriage = transport._publisher.owner()._pool
            assert carriage is not None
            wait_until(lambda: not carriage.batches)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_channels_that_are_all_taken_by_the_silent_end_the_connection(
    acknowledging: Mapping[type, Answer], caplog: pytest.LogCaptureFixture
) -> None:
    few = {spec.Connection.StartOk: lambda _: spec.Connection.Tune(4, 131072, 0), spec.Channel.Close: lambda _: None}
    broker = lonely({**acknowledging, **few}, [])

    def send() -> None:
        with closing(RabbitMQTransport(broker.url)) as transport:
            for _ in range(10):
                transport.send([a_message("silent")], None, SHORT)
            (other,) = transport.send([a_message("q")], None, LONG)
            assert other.kind is OutcomeKind.DELIVERED

    ended(send, broker)
    assert "was lost: all channels wait for answers" in caplog.text
    assert "internal error" not in caplog.text


def test_an_error_queue_that_is_not_declared_in_time_stops_no_dispatching(
    acknowledging: Mapping[type, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.pika_internals.ANSWER", LONG)
    monkeypatch.setattr("delaystore.transports.rabbitmq.blocking.ANSWER", LONG)
    monkeypatch.setattr("delaystore.dispatcher.error_queue.GRACE", SHORT)
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


def test_batches_that_begin_are_no_sign_of_life(acknowledging: Mapping[type, Answer]) -> None:
    """Many threads send at once: each new batch would tell the others that a frozen broker answers."""
    frozen = threading.Event()
    silent = {
        spec.Channel.Open: lambda _: None if frozen.is_set() else spec.Channel.OpenOk(),
        spec.Basic.Publish: lambda method, tag, say: None if frozen.is_set() else spec.Basic.Ack(tag),
    }
    broker = scripted({**acknowledging, **silent})

    def send() -> set[OutcomeKind]:
        with closing(RabbitMQTransport(broker.url)) as transport, ThreadPoolExecutor(8) as threads:
            transport.send([a_message("q")], None, LONG)
            frozen.set()
            sends = []
            for _ in range(8):
                sends.append(threads.submit(transport.send, [a_message("q")], None, 4 * SHORT))
                time.sleep(SHORT)
            return {outcome.kind for each in sends for outcome in each.result(LONG)}

    assert ended(send, broker) == {OutcomeKind.UNCONFIRMED}
