import logging
import os
import socket
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlsplit

import pika
import psutil
import pytest

from delaystore.errors import TransportError, TransportSetupError, TransportUnavailableError
from delaystore.message import DelayedMessage, new_message_id
from delaystore.transports import RabbitMQTransport, open_transport
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq import channels as channels_module
from delaystore.transports.rabbitmq import owner as owner_module
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.parameters import broker_from_url
from tests.dispatching import wait_until
from tests.servers import Proxy, RabbitMQ, RabbitMQVhosts

DELIVERED, UNROUTABLE = OutcomeKind.DELIVERED, OutcomeKind.UNROUTABLE
REFUSED, UNCONFIRMED, UNAVAILABLE = OutcomeKind.REFUSED, OutcomeKind.UNCONFIRMED, OutcomeKind.UNAVAILABLE
LONG = 60.0
Connect = Callable[..., RabbitMQTransport]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes transports, closed after the test."""
    made: list[RabbitMQTransport] = []

    def make(url: str, **options: Any) -> RabbitMQTransport:
        made.append(RabbitMQTransport(url, **options))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


@pytest.fixture
def transport(rabbitmq_url: str, connect: Connect) -> RabbitMQTransport:
    return connect(rabbitmq_url)


def message(destination: str = "q", **fields: Any) -> DelayedMessage:
    fields.setdefault("message_id", new_message_id())
    fields.setdefault("body", b"body")
    return DelayedMessage(destination=destination, due_time=datetime(2027, 1, 1, tzinfo=UTC), **fields)


def kinds(outcomes: Any) -> list[OutcomeKind]:
    return [outcome.kind for outcome in outcomes]


def others_than_delivered(outcomes: Any) -> dict[int, OutcomeKind]:
    return {index: outcome.kind for index, outcome in enumerate(outcomes) if outcome.kind is not DELIVERED}


def drain(transport: RabbitMQTransport, queue: str = "q") -> list[str]:
    """The ids of all messages in the queue, which is empty after."""
    ids: list[str] = []
    while True:
        with transport.receive(queue, limit=1000) as received:
            ids += [one.message_id for one in received]
        if not received:
            return ids


@contextmanager
def admin_channel(url: str) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    yield connection.channel()
    connection.close()


def declare_with(url: str, queue: str, arguments: Mapping[str, object]) -> None:
    with admin_channel(url) as channel:
        channel.queue_declare(queue, durable=True, arguments=dict(arguments))


HEADERS: list[dict[str, Any]] = [
    {},
    {"int": 1, "negative": -(2**31) - 1, "large": 2**63 - 1, "small": -(2**63), "yes": True, "no": False, "none": None},
    {"text": "käse \0 \U0001f9c0", "empty": "", "": "no name", "n" * 255: "long name"},
    {"bytes": bytes(range(256)), "no bytes": b""},
    {"time": datetime(2027, 1, 1, 12, tzinfo=UTC), "epoch": datetime(1970, 1, 1, tzinfo=UTC)},
    {"decimal": Decimal("-1.25"), "zero": Decimal(0), "most": Decimal(2**31 - 1)},
    {"table": {"in": {"table": [1, [b"x", None], {}]}}, "no table": {}, "list": [], "mixed": [True, 1, "1", b"1"]},
    {"x-delay": 5, "x-death": [{"count": 1, "queue": "elsewhere"}], "CC": []},
]
PROPERTIES: list[dict[str, Any]] = [
    {},
    {"content_type": "application/json", "content_encoding": "utf-8", "correlation_id": "ü" * 127, "reply_to": "back"},
    {"type": "", "app_id": "app\0", "priority": 0, "expiration": "600000", "delivery_mode": 1},
    {"priority": 255, "expiration": str(2**32 - 1), "timestamp": datetime(2106, 2, 7, 6, 28, 16, tzinfo=UTC)},
]


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_headers_and_properties_arrive_as_they_were_sent(rabbitmq_url: str, queue_type: str, connect: Connect) -> None:
    transport = connect(rabbitmq_url, queue_type=queue_type)
    transport.declare("q")
    sent = [message(headers=headers, properties=some) for headers in HEADERS for some in PROPERTIES]
    for one in sent:
        transport.check(one)
    assert set(kinds(transport.send(sent, None, LONG))) == {DELIVERED}
    with transport.receive("q", limit=100, timeout=LONG) as received:
        # from RabbitMQ 4 on quorum queues deliver by priority
        arrivals = {one.message_id: one for one in received}
        assert len(received) == len(sent)
        for given in sent:
            arrived = arrivals[given.message_id]
            assert arrived.headers == given.headers
            assert arrived.properties == {"delivery_mode": 2, **given.properties}
            assert {name: type(value) for name, value in arrived.headers.items()} == {
                name: type(value) for name, value in given.headers.items()
            }


@pytest.mark.parametrize("size", [0, 1, 131064, 131065, 1_000_000])
def test_bodies_of_any_size_arrive(transport: RabbitMQTransport, size: int) -> None:
    transport.declare("q")
    body = bytes(index % 251 for index in range(size))
    assert kinds(transport.send([message(body=body), message(body=b"next")], None, LONG)) == [DELIVERED, DELIVERED]
    with transport.receive("q", limit=2, timeout=LONG) as received:
        assert [one.body for one in received] == [body, b"next"]


def test_messages_arrive_in_their_order_through_a_window_smaller_than_the_batch(transport: RabbitMQTransport) -> None:
    transport.declare("q")
    sent = [message() for _ in range(3 * channels_module.WINDOW)]
    assert set(kinds(transport.send(sent, None, LONG))) == {DELIVERED}
    assert drain(transport) == [one.message_id for one in sent]


def test_large_bodies_pass_a_window_of_bytes(transport: RabbitMQTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels_module, "WINDOW_BYTES", 1000)
    transport.declare("q")
    outcomes = transport.send([message(body=b"x" * 700) for _ in range(50)], None, LONG)
    assert set(kinds(outcomes)) == {DELIVERED}


def test_nothing_to_send_needs_no_connection() -> None:
    assert RabbitMQTransport("amqp://nowhere.invalid").send([], None, 1) == []


def test_addresses_lead_to_queues_and_exchanges(transport: RabbitMQTransport, rabbitmq_url: str) -> None:
    transport.declare("/queues/a%2Fb%20%C3%BC")
    with admin_channel(rabbitmq_url) as channel:
        channel.exchange_declare("events/all", "topic")
        channel.queue_bind("a/b ü", "events/all", "orders.*")
    sent = [message("a/b ü"), message("/queues/a%2Fb%20%C3%BC"), message("/exchanges/events%2Fall/orders.new")]
    assert kinds(transport.send(sent, None, LONG)) == [DELIVERED, DELIVERED, DELIVERED]
    assert drain(transport, "/queues/a%2Fb%20%C3%BC") == [one.message_id for one in sent]
    outcomes = transport.send([message("/exchanges/events%2Fall/unbound")], None, LONG)
    assert outcomes[0] == Outcome(
        UNROUTABLE, "no queue is bound to the exchange for it; returned by the broker: NO_ROUTE"
    )


def test_a_missing_queue_among_good_ones_is_unroutable_alone(transport: RabbitMQTransport) -> None:
    transport.declare("q")
    batch = [message("missing" if index % 100 == 7 else "q") for index in range(1000)]
    outcomes = transport.send(batch, None, LONG)
    assert others_than_delivered(outcomes) == dict.fromkeys(range(7, 1000, 100), UNROUTABLE)
    assert drain(transport) == [one.message_id for one in batch if one.destination == "q"]


def test_messages_that_close_the_channel_fail_alone(transport: RabbitMQTransport) -> None:
    transport.declare("q")
    batch = [message() for _ in range(1000)]
    batch[100] = message("/exchanges/missing/key")
    batch[101] = message("/exchanges/missing/other-key")
    batch[500] = message(properties={"expiration": "abc"})
    batch[501] = message(headers={"CC": "no list"})
    batch[700] = message(headers={f"header {number}": "x" * 10_000 for number in range(20)})
    batch[701] = message(headers={"large": 2**63})
    batch[702] = message("/no/address")
    batch[999] = message("missing")
    outcomes = transport.send(batch, None, LONG)
    assert others_than_delivered(outcomes) == {
        100: UNROUTABLE,
        101: UNROUTABLE,
        500: REFUSED,
        501: REFUSED,
        700: REFUSED,
        701: REFUSED,
        702: UNROUTABLE,
        999: UNROUTABLE,
    }
    assert "no exchange 'missing'" in outcomes[100].reason
    assert "invalid expiration 'abc'" in outcomes[500].reason
    assert "frame_max is 131072" in outcomes[700].reason
    assert transport.unavailable() is None
    arrived = Counter(drain(transport))
    assert set(arrived) == {one.message_id for one, outcome in zip(batch, outcomes, strict=True) if not outcome.reason}


def test_a_whole_batch_that_closes_the_channel_is_settled(transport: RabbitMQTransport) -> None:
    missing = [message("/exchanges/missing/key") for _ in range(500)]
    outcomes = transport.send([*missing, *(message(properties={"expiration": "x"}) for _ in range(20))], None, LONG)
    assert kinds(outcomes) == [UNROUTABLE] * 500 + [REFUSED] * 20


def test_messages_that_close_the_connection_fail_alone(
    transport: RabbitMQTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels_module, "fits", lambda _header, _frame_max: True)
    transport.declare("q")
    too_large = {f"header {number}": "x" * 10_000 for number in range(20)}
    batch = [message(headers=too_large if index in (250, 750) else {}) for index in range(1000)]
    innocent = [message() for _ in range(200)]
    with ThreadPoolExecutor(2) as pool:
        beside = pool.submit(lambda: [transport.send([one], None, LONG)[0] for one in innocent])
        outcomes = transport.send(batch, None, LONG)
        assert set(kinds(beside.result())) <= {DELIVERED}
    assert others_than_delivered(outcomes) == {250: REFUSED, 750: REFUSED}
    assert "501 FRAME_ERROR" in outcomes[250].reason
    assert {one.message_id for one in [*batch, *innocent]} - set(drain(transport)) == {
        batch[250].message_id,
        batch[750].message_id,
    }


def test_a_full_queue_refuses(transport: RabbitMQTransport, rabbitmq_url: str) -> None:
    declare_with(rabbitmq_url, "full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    transport.declare("q")
    first = transport.send([message("full")], None, LONG)
    outcomes = transport.send([message("q"), message("full"), message("q")], None, LONG)
    assert kinds([*first, *outcomes]) == [DELIVERED, DELIVERED, REFUSED, DELIVERED]
    assert outcomes[1].reason.startswith("nacked by the broker")


def test_the_same_id_twice_in_a_batch_is_not_mixed_up(transport: RabbitMQTransport) -> None:
    transport.declare("q")
    batch = [
        message("missing", message_id="twin"),
        message("q", message_id="twin"),
        message("missing", message_id="twin"),
    ]
    assert kinds(transport.send(batch, None, LONG)) == [UNROUTABLE, DELIVERED, UNROUTABLE]
    assert drain(transport) == ["twin"]


def test_many_threads_may_send_at_once(transport: RabbitMQTransport) -> None:
    transport.declare("q")
    batches = [[message() for _ in range(100)] for _ in range(40)]
    bad = {one.message_id for one in (batch[50] for batch in batches[::5])}
    for batch in batches[::5]:
        batch[50] = message(properties={"expiration": "bad"}, message_id=batch[50].message_id)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda batch: transport.send(batch, None, LONG), batches))
    for index, outcomes in enumerate(results):
        assert others_than_delivered(outcomes) == ({50: REFUSED} if index % 5 == 0 else {})
    assert set(drain(transport)) == {one.message_id for batch in batches for one in batch} - bad


def test_a_transport_may_be_closed_twice_and_used_again(transport: RabbitMQTransport) -> None:
    transport.close()
    transport.declare("q")
    for _ in range(3):
        assert kinds(transport.send([message()], None, LONG)) == [DELIVERED]
        transport.close()
        transport.close()
        assert not [one for one in threading.enumerate() if one.name.startswith("delaystore-")]
    assert len(drain(transport)) == 3


def test_closing_ends_a_send_that_is_under_way(private_rabbitmq: RabbitMQ, connect: Connect) -> None:
    transport = connect(private_rabbitmq.url)
    assert kinds(transport.send([message("missing")], None, LONG)) == [UNROUTABLE]
    private_rabbitmq.pause()
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(transport.send, [message("missing")], None, 10 * LONG)
        time.sleep(0.2)
        transport.close()
        assert kinds(sending.result(LONG)) == [UNCONFIRMED]
    private_rabbitmq.resume()


def test_a_forked_child_has_a_connection_of_its_own(
    transport: RabbitMQTransport, caplog: pytest.LogCaptureFixture
) -> None:
    transport.declare("q")
    assert kinds(transport.send([message(message_id="before")], None, LONG)) == [DELIVERED]
    (heard, told), (go_on, tell) = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forking a process that has threads, which is what is tried here
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        exit_code = 1
        try:
            outcomes = transport.send([message(message_id="child")], None, LONG)
            with transport.receive("q", timeout=LONG) as received:
                os.write(told, b".")
                os.read(go_on, 1)
            exit_code = 0 if kinds(outcomes) == [DELIVERED] and len(received) == 1 else 1
        finally:
            os._exit(exit_code)
    os.close(told)
    assert os.read(heard, 1)
    transport.declare("beside")  # while the child holds a message on its connection
    os.write(tell, b".")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert kinds(transport.send([message(message_id="after")], None, LONG)) == [DELIVERED]
    assert drain(transport) == ["child", "after"]
    assert caplog.records == []
    for descriptor in (heard, go_on, tell):
        os.close(descriptor)


def test_the_first_question_starts_connecting_and_returns_at_once(transport: RabbitMQTransport) -> None:
    assert transport.unavailable() == "connecting"
    wait_until(lambda: transport.unavailable() is None, "a connection")


@pytest.mark.long
def test_connecting_and_reconnecting_is_told_in_one_line_each(
    private_rabbitmq: RabbitMQ, caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    caplog.set_level(logging.INFO, "delaystore")
    transport = connect(private_rabbitmq.url)
    wait_until(lambda: transport.unavailable() is None, "a connection")
    private_rabbitmq.kill()
    wait_until(lambda: transport.unavailable() is not None, "the loss noticed")
    private_rabbitmq.start()
    wait_until(lambda: transport.unavailable() is None, "a connection")
    transport.close()
    told = [(record.levelname, record.getMessage()) for record in caplog.records if record.levelno >= logging.INFO]
    assert [level for level, _ in told] == ["INFO", "WARNING", "INFO"]
    assert "was lost" in told[1][1]
    assert quote(urlsplit(private_rabbitmq.url).password or "") not in caplog.text


@pytest.mark.long
def test_a_broker_killed_in_the_middle_of_a_batch_leaves_messages_unconfirmed_at_once(
    private_rabbitmq: RabbitMQ, connect: Connect
) -> None:
    transport = connect(private_rabbitmq.url, queue_type="classic")
    transport.declare("durable")
    private_rabbitmq.sync_queues()
    batch = [message("durable", body=b"x" * 2000) for _ in range(100_000)]
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(transport.send, batch, None, 10 * LONG)
        wait_until(lambda: depth(private_rabbitmq) > 3 * channels_module.WINDOW, "a part of the batch in the queue")
        private_rabbitmq.kill()
        outcomes = sending.result(LONG)
    assert set(kinds(outcomes)) == {DELIVERED, UNCONFIRMED}
    assert "was lost" in next(outcome.reason for outcome in outcomes if outcome.kind is UNCONFIRMED)
    assert transport.unavailable() is not None
    private_rabbitmq.start()
    rest = [one for one, outcome in zip(batch, outcomes, strict=True) if outcome.kind is UNCONFIRMED][:100]
    assert set(kinds(transport.send(rest, None, LONG))) == {DELIVERED}
    confirmed = {one.message_id for one, outcome in zip(batch, outcomes, strict=True) if outcome.kind is DELIVERED}
    assert confirmed | {one.message_id for one in rest} <= set(drain(transport, "durable"))


def depth(broker: RabbitMQ) -> int:
    with admin_channel(broker.url) as channel:
        count: int = channel.queue_declare("durable", passive=True).method.message_count
    return count


def test_no_answer_is_unconfirmed_and_a_late_one_settles_nothing_else(
    private_rabbitmq: RabbitMQ, connect: Connect
) -> None:
    transport = connect(private_rabbitmq.url, heartbeat=0, queue_type="classic")
    transport.declare("late")
    assert kinds(transport.send([message("missing")], None, LONG)) == [UNROUTABLE]
    private_rabbitmq.pause()
    late = [message("late") for _ in range(50)]
    outcomes = transport.send(late, None, 0.3)
    assert set(kinds(outcomes)) == {UNCONFIRMED}
    assert {outcome.late.arrived for outcome in outcomes if outcome.late} == {None}
    assert "does not answer" in str(transport.unavailable())  # at once, or it is mistaken for the messages' own fault
    assert kinds(transport.send([message("late")], None, 0.1)) == [UNCONFIRMED]
    with ThreadPoolExecutor(1) as pool:
        after = pool.submit(transport.send, [message("missing") for _ in range(50)], None, LONG)
        time.sleep(0.2)
        private_rabbitmq.resume()
        assert set(kinds(after.result(LONG))) == {UNROUTABLE}
    assert set(drain(transport, "late")) == {one.message_id for one in late}
    wait_until(lambda: {outcome.late.arrived for outcome in outcomes if outcome.late} == {True}, "the late confirms")


def test_what_is_published_only_after_its_sender_has_left_is_known_to_arrive(
    transport: RabbitMQTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that is so busy that the connection's thread does not come to it."""
    monkeypatch.setattr(owner_module, "_CLOSE_SECONDS", 0.2)
    transport.declare("q")
    assert kinds(transport.send([message()], None, LONG)) == [DELIVERED]
    busy = threading.Event()
    transport._publisher.owner()._loop.add_callback_threadsafe(lambda: busy.wait(LONG))
    batch = [message() for _ in range(3)]
    outcomes = transport.send(batch, None, 0.3)
    busy.set()
    assert set(kinds(outcomes)) == {UNCONFIRMED}
    wait_until(lambda: fates(outcomes) == {True}, "the late confirms")
    assert set(drain(transport)[1:]) == {one.message_id for one in batch}


def test_a_broker_that_answers_all_but_some_messages_is_there(
    transport: RabbitMQTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport.declare("stuck")
    monkeypatch.setattr(
        channels_module.ConfirmChannel, "_on_answer", lambda self, frame: None
    )  # a queue without its quorum
    assert kinds(transport.send([message("stuck")], None, 0.5)) == [UNAVAILABLE]
    assert transport.unavailable() is None


def test_a_message_that_closes_its_channel_too_late_holds_nobody_up(
    private_rabbitmq: RabbitMQ, connect: Connect
) -> None:
    transport = connect(private_rabbitmq.url, heartbeat=0)
    assert kinds(transport.send([message("missing")], None, LONG)) == [UNROUTABLE]
    private_rabbitmq.pause()
    assert kinds(transport.send([message("/exchanges/missing/key")], None, 0.2)) == [UNCONFIRMED]
    private_rabbitmq.resume()
    assert kinds(transport.send([message("missing")], None, LONG)) == [UNROUTABLE]


@pytest.mark.long
def test_heartbeats_find_out_that_the_broker_no_longer_answers(private_rabbitmq: RabbitMQ, connect: Connect) -> None:
    transport = connect(private_rabbitmq.url, heartbeat=1)
    wait_until(lambda: transport.unavailable() is None, "a connection")
    private_rabbitmq.pause()
    wait_until(lambda: transport.unavailable() is not None, "the loss noticed")
    private_rabbitmq.resume()
    wait_until(lambda: transport.unavailable() is None, "a connection")


def test_a_memory_alarm_holds_messages_up_and_says_why(
    private_rabbitmq: RabbitMQ, caplog: pytest.LogCaptureFixture, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_module, "SILENCE_SECONDS", 0.2)  # setting the watermark takes longer
    transport = connect(private_rabbitmq.url)
    transport.declare("alarmed")
    assert kinds(transport.send([message("alarmed")], None, LONG)) == [DELIVERED]
    private_rabbitmq.ctl("set_vm_memory_high_watermark", "0")
    try:
        wait_until(lambda: transport.send([message("alarmed")], None, 0.5)[0].kind is UNCONFIRMED, "the alarm")
        wait_until(lambda: "blocks publishers: low on memory" in str(transport.unavailable()), "the reason")
        outcomes = transport.send([message("alarmed")], None, 0.1)
        assert "low on memory" in outcomes[0].reason
    finally:
        private_rabbitmq.ctl("set_vm_memory_high_watermark", "0.6")
    wait_until(lambda: transport.unavailable() is None, "the end of the alarm")
    assert kinds(transport.send([message("alarmed")], None, LONG)) == [DELIVERED]
    assert "was lost" not in caplog.text  # a new connection would be sent a batch, and be blocked as well


@pytest.mark.long
def test_what_waits_for_the_end_of_an_alarm_is_not_given_up(
    private_rabbitmq: RabbitMQ, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels_module, "ANSWER_TIMEOUT", 0.5)
    transport = connect(private_rabbitmq.url, queue_type="classic")
    transport.declare("alarmed")
    assert kinds(transport.send([message("alarmed")], None, LONG)) == [DELIVERED]
    private_rabbitmq.alarm("memory")
    try:
        waiting = [message("alarmed") for _ in range(20)]
        outcomes = transport.send(waiting, None, 0.5)
        assert set(kinds(outcomes)) == {UNCONFIRMED}
        wait_until(lambda: "blocks publishers" in str(transport.unavailable()), "the reason")
        time.sleep(2)
        assert fates(outcomes) == {None}
        monkeypatch.setattr(channels_module, "ANSWER_TIMEOUT", LONG)
    finally:
        private_rabbitmq.clear_alarms()
    wait_until(lambda: None not in fates(outcomes), "the late confirms")
    assert fates(outcomes) == {True}


def test_what_has_not_left_this_machine_is_not_given_up(
    rabbitmq_url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_module, "SILENCE_SECONDS", LONG)
    monkeypatch.setattr(channels_module, "ANSWER_TIMEOUT", 0.5)
    with Proxy(urlsplit(rabbitmq_url).port or 0) as network:
        transport = connect(network.url_of(rabbitmq_url))
        transport.declare("far away")
        assert kinds(transport.send([message("far away")], None, LONG)) == [DELIVERED]  # there is a channel
        network.hold()
        outcomes = transport.send([message("far away", body=bytes(15_000_000))], None, 0.5)
        assert set(kinds(outcomes)) == {UNCONFIRMED}
        time.sleep(2)
        assert fates(outcomes) == {None}
        monkeypatch.setattr(channels_module, "ANSWER_TIMEOUT", LONG)
        network.pass_on()
        wait_until(lambda: None not in fates(outcomes), "the late confirm")
        assert fates(outcomes) == {True}
        transport.close()


def fates(outcomes: Sequence[Outcome]) -> set[bool | None]:
    """What has become of messages that were on their way."""
    assert all(outcome.late for outcome in outcomes)
    return {outcome.late.arrived for outcome in outcomes if outcome.late}


def test_closing_does_not_wait_for_a_broker_that_does_not_listen(private_rabbitmq: RabbitMQ, connect: Connect) -> None:
    transport = connect(private_rabbitmq.url)
    wait_until(lambda: transport.unavailable() is None, "a connection")
    private_rabbitmq.pause()
    transport.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("delaystore-")]
    private_rabbitmq.resume()


def test_an_interrupted_receiver_does_not_wait_for_a_broker_that_does_not_answer(
    private_rabbitmq: RabbitMQ, connect: Connect
) -> None:
    transport = connect(private_rabbitmq.url)
    transport.declare("q")

    def interrupted() -> None:
        with pytest.raises(KeyboardInterrupt), transport.receive("q"):
            private_rabbitmq.pause()
            raise KeyboardInterrupt

    with ThreadPoolExecutor() as executor:
        receiving = executor.submit(interrupted)
        try:
            receiving.result(LONG)
        finally:
            private_rabbitmq.resume()


def test_a_connection_that_another_thread_took_in_between_is_not_closed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Contested(list[object]):
        def __bool__(self) -> bool:
            return True  # and gone at the next look

    connections = BlockingConnections(broker_from_url("amqp://127.0.0.1"))
    monkeypatch.setattr(connections, "_idle", Contested())
    connections.close()


def test_closing_in_the_middle_of_a_handshake_is_no_error(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(LONG)
        transport = connect(f"amqp://ann:secret@127.0.0.1:{silent.getsockname()[1]}")
        assert transport.unavailable() == "connecting"
        peer, _ = silent.accept()
        with peer:
            peer.settimeout(LONG)
            assert peer.recv(8).startswith(b"AMQP")
            transport.close()
            assert not [one for one in threading.enumerate() if one.name.startswith("delaystore-")]
            assert peer.recv(1) == b""  # the socket is closed
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_broker_that_is_not_there_is_an_outage(connect: Connect) -> None:
    transport = connect("amqp://ann:secret@127.0.0.1:1")
    outcomes = transport.send([message()], None, 0.5)
    assert kinds(outcomes) == [UNCONFIRMED]
    assert "127.0.0.1:1 cannot be reached" in outcomes[0].reason
    with pytest.raises(TransportUnavailableError, match=r"127\.0\.0\.1:1 cannot be reached"):
        transport.declare("q")
    with pytest.raises(TransportUnavailableError), transport.receive("q"):
        pass


def test_a_host_that_does_not_resolve_is_an_outage(connect: Connect) -> None:
    transport = connect("amqp://ann:secret@broker.invalid")
    wait_until(lambda: "cannot be reached" in str(transport.unavailable()), "the reason")


@pytest.mark.parametrize(("user", "vhost", "reason"), [(True, "", "login refused"), (False, "nowhere", "nowhere")])
def test_a_refused_login_is_named_without_the_password(
    rabbitmq: RabbitMQVhosts, caplog: pytest.LogCaptureFixture, user: bool, vhost: str, reason: str, connect: Connect
) -> None:
    parts = urlsplit(rabbitmq.url)
    login = "ann:wrong-secret" if user else f"{parts.username}:{parts.password}"
    transport = connect(f"amqp://{login}@{parts.hostname}:{parts.port}/{vhost}")
    wait_until(lambda: reason in str(transport.unavailable()), reason)
    with pytest.raises(TransportUnavailableError, match=reason) as caught:
        transport.declare("q")
    told = f"{transport.unavailable()} {caught.value} {caplog.text}"
    assert "wrong-secret" not in told
    assert parts.password is not None
    assert parts.password not in told
    assert [record.name for record in caplog.records if record.name.startswith("pika")] == []


def tls_url(broker: RabbitMQVhosts, **query: object) -> str:
    if not isinstance(broker, RabbitMQ):
        pytest.skip("a broker given by DELAYSTORE_TEST_RABBITMQ_URL has no certificates of ours")
    return f"{broker.tls_url}?{'&'.join(f'{name}={value}' for name, value in query.items())}"


def test_tls_with_a_client_certificate(rabbitmq: RabbitMQVhosts) -> None:
    tls_url(rabbitmq)
    assert isinstance(rabbitmq, RabbitMQ)
    files = rabbitmq.certificates
    url = tls_url(rabbitmq, cacertfile=files.ca_file, certfile=files.client_cert, keyfile=files.client_key)
    transport = open_transport(url)
    transport.declare("tls")
    sent = [message("tls", body=b"x" * 50_000) for _ in range(100)]
    assert set(kinds(transport.send(sent, None, LONG))) == {DELIVERED}
    with transport.receive("tls", limit=100, timeout=LONG) as received:
        assert [one.message_id for one in received] == [one.message_id for one in sent]
    transport.close()


def test_a_broker_of_an_unknown_authority_is_not_trusted(rabbitmq: RabbitMQVhosts, connect: Connect) -> None:
    transport = connect(tls_url(rabbitmq))
    wait_until(lambda: "its TLS certificate was not accepted" in str(transport.unavailable()), "the reason")


def test_a_broker_that_demands_a_client_certificate_is_not_reached_without(
    rabbitmq: RabbitMQVhosts, connect: Connect
) -> None:
    url = tls_url(rabbitmq)
    assert isinstance(rabbitmq, RabbitMQ)
    transport = connect(url, ca_file=str(rabbitmq.certificates.ca_file))
    wait_until(lambda: "cannot be reached" in str(transport.unavailable()), "the reason")


def test_a_queue_that_exists_is_left_as_it_is(transport: RabbitMQTransport, rabbitmq_url: str) -> None:
    declare_with(rabbitmq_url, "theirs", {"x-queue-type": "classic", "x-max-length": 5})
    transport.declare("theirs")
    transport.declare("theirs")


def test_what_cannot_be_declared_says_why(transport: RabbitMQTransport) -> None:
    with pytest.raises(TransportSetupError, match=r"amq\.mine.*ACCESS_REFUSED"):
        transport.declare("amq.mine")
    with pytest.raises(TransportSetupError, match="is an exchange"):
        transport.declare("/exchanges/events/key")
    with pytest.raises(TransportSetupError, match="is no address"):
        transport.declare("/nowhere")


def test_what_a_consumer_fails_on_goes_back(transport: RabbitMQTransport) -> None:
    transport.declare("q")
    sent = message(headers={"mine": 1})
    transport.send([sent], None, LONG)
    with pytest.raises(ZeroDivisionError), transport.receive("q", timeout=LONG) as received:
        assert len(received) == 1
        _ = 1 / 0
    with transport.receive("q", timeout=LONG) as received:
        assert [(one.message_id, one.headers) for one in received] == [(sent.message_id, {"mine": 1})]
    with transport.receive("q") as received:
        assert received == []


def test_no_more_than_the_limit_is_taken(transport: RabbitMQTransport) -> None:
    transport.declare("q")
    transport.send([message() for _ in range(10)], None, LONG)
    with (
        transport.receive("q", limit=3, timeout=LONG) as first,
        transport.receive("q", limit=20, timeout=LONG) as second,
    ):
        assert (len(first), len(second)) == (3, 7)
    assert drain(transport) == []


@contextmanager
def steadily_published(url: str, ids: list[str], interval: float) -> Iterator[list[str]]:
    """Publishes a message for each of `ids` until the block ends; the ids published so far."""
    published: list[str] = []
    ended = threading.Event()

    def publish() -> None:
        with admin_channel(url) as channel:
            channel.confirm_delivery()
            for one in ids:
                channel.basic_publish("", "q", b"", pika.BasicProperties(message_id=one))
                published.append(one)
                if ended.wait(interval):
                    break

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield published
    finally:
        ended.set()
        thread.join(LONG)


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_a_steady_stream_does_not_hold_up_what_has_arrived(
    rabbitmq_url: str, queue_type: str, connect: Connect
) -> None:
    transport = connect(rabbitmq_url, queue_type=queue_type)
    transport.declare("q")
    stream = [new_message_id() for _ in range(1000)]
    with (
        steadily_published(rabbitmq_url, stream, interval=0.0025) as published,
        transport.receive("q", limit=1000, timeout=LONG) as received,
    ):
        pass
    taken = [one.message_id for one in received]
    assert 0 < len(taken) < len(stream) / 2
    assert taken + drain(transport) == published


def test_a_backlog_is_taken_up_to_the_limit_however_long_it_takes_to_arrive(transport: RabbitMQTransport) -> None:
    transport.declare("q")
    sent = [message(body=b"x" * 5000) for _ in range(3000)]
    assert set(kinds(transport.send(sent, None, LONG))) == {DELIVERED}
    with transport.receive("q", limit=2000, timeout=LONG) as received:
        assert [one.message_id for one in received] == [one.message_id for one in sent[:2000]]
    assert drain(transport) == [one.message_id for one in sent[2000:]]


def test_receiving_from_a_queue_that_is_missing_says_so(transport: RabbitMQTransport) -> None:
    with pytest.raises(TransportError, match="no queue 'missing'"), transport.receive("missing"):
        pass


def test_a_connection_in_use_when_the_transport_is_closed_is_closed_after_its_use(
    transport: RabbitMQTransport, rabbitmq_url: str
) -> None:
    def connections() -> set[int]:
        port = urlsplit(rabbitmq_url).port
        return {each.fd for each in psutil.Process().net_connections() if each.raddr and each.raddr.port == port}

    before = connections()
    transport.declare("q")
    with transport.receive("q", 1, 0):
        assert connections() - before
        transport.close()
    assert not connections() - before


@pytest.mark.long
def test_receiving_goes_on_after_the_broker_was_away(private_rabbitmq: RabbitMQ, connect: Connect) -> None:
    transport = connect(private_rabbitmq.url, queue_type="classic")
    transport.declare("away")
    private_rabbitmq.sync_queues()
    transport.send([message("away")], None, LONG)
    with pytest.raises(TransportUnavailableError), transport.receive("away", timeout=LONG) as received:
        private_rabbitmq.kill()
    private_rabbitmq.start()
    with transport.receive("away", timeout=LONG) as again:
        assert [one.message_id for one in again] == [one.message_id for one in received]


def test_a_deleted_queue_is_gone_and_deleting_it_again_changes_nothing(transport: RabbitMQTransport) -> None:
    transport.declare("billing")
    transport.delete("billing")
    transport.delete("/queues/billing")
    with pytest.raises(TransportError, match="billing"), transport.receive("billing"):
        pass
