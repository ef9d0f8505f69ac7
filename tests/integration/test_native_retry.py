"""Delayed retry: a consumer's message comes back to its own queue, as it was, and no more often than wanted."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest

from delaystore import text as names
from delaystore.errors import ConfigurationError, TransportError, TransportUnavailableError, UnsupportedMessageError
from delaystore.transports.rabbitmq.delay_headers import DELAY_IN_SECONDS, TIME_SENT, time_sent_text
from delaystore.transports.rabbitmq.retry import Expired, RetryResult, next_step, original, retry_later, settle_expired
from delaystore.transports.rabbitmq.topology import CascadeTopology, celery, custom
from tests.integration.cascades import arrivals, channel_to, declare, leave_only, make_destination, make_queue, ready
from tests.servers import RabbitMQVhosts

FAST = custom("fast", levels=10, unit=timedelta(milliseconds=1))
SKIPPING = custom("skips", levels=10, unit=timedelta(milliseconds=1), skipping=True)
DELAY = timedelta(milliseconds=20)
QUEUE = "orders.v2"


@pytest.fixture
def channel(rabbitmq_url: str) -> Any:
    with channel_to(rabbitmq_url) as channel:
        declare(channel, FAST.layout())
        make_queue(channel, QUEUE)
        channel.exchange_declare("sales", "topic", durable=True)
        channel.queue_bind(QUEUE, "sales", "orders.#")
        yield channel


def publish(channel: Any, **properties: Any) -> None:
    properties.setdefault("message_id", "1")
    channel.basic_publish("sales", "orders.created", b"body", pika.BasicProperties(**properties), mandatory=True)


def take(channel: Any, queue: str = QUEUE) -> tuple[Any, Any, bytes]:
    """The next message, not yet acknowledged."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        method, properties, body = channel.basic_get(queue)
        if method is not None:
            return method, properties, body
        time.sleep(0.005)
    raise AssertionError(f"nothing came to {queue!r}")


def again(channel: Any, message: tuple[Any, Any, bytes], **options: Any) -> RetryResult:
    options = {"queue": QUEUE, "topology": FAST, "delay": DELAY} | options
    return retry_later(channel, *message, options.pop("delay"), **options)


def test_a_message_comes_back_after_the_delay_as_it_was_sent(channel: Any) -> None:
    publish(channel, headers={"kind": "order"}, expiration="60000", priority=3, reply_to="answers", delivery_mode=2)
    began = time.monotonic()
    assert again(channel, take(channel), delay=0.3) is RetryResult.DELAYED
    method, properties, body = take(channel)
    assert time.monotonic() - began >= 0.3
    first = original(method, properties, topology=FAST)
    assert (first.exchange, first.routing_key, first.attempt, body) == ("sales", "orders.created", 1, b"body")
    assert first.properties.expiration == "60000"
    assert first.properties.message_id == "1"
    assert (first.properties.priority, first.properties.reply_to, first.properties.delivery_mode) == (3, "answers", 2)
    assert {name: first.properties.headers[name] for name in first.properties.headers if "NService" not in name} == {
        "kind": "order"
    }


@pytest.mark.long_runs(after=1)
@pytest.mark.parametrize("topology", [FAST, SKIPPING], ids=["walking", "skipping"])
def test_a_message_comes_back_fifty_times(channel: Any, topology: CascadeTopology) -> None:
    declare(channel, topology.layout())
    publish(channel, headers={"kind": "order"})
    for attempt in range(50):
        method, properties, body = take(channel)
        assert original(method, properties, topology=topology).attempt == attempt
        assert again(channel, (method, properties, body), topology=topology) is RetryResult.DELAYED
    method, properties, _ = take(channel)
    first = original(method, properties, topology=topology)
    assert (first.exchange, first.routing_key, first.attempt) == ("sales", "orders.created", 50)
    assert len(properties.headers["x-death"]) <= 2  # of this round alone
    assert len(method.routing_key) == 2 * topology.levels + len(QUEUE)
    assert ready(channel, QUEUE) == 0


def test_each_message_of_many_comes_back_once(channel: Any) -> None:
    for number in range(100):
        publish(channel, message_id=str(number))
    for _ in range(100):
        again(channel, take(channel))
    assert sorted(int(each.properties.message_id) for each in arrivals(channel, [QUEUE], 100)) == list(range(100))
    assert ready(channel, QUEUE) == 0


def test_the_delivery_is_acknowledged_on_a_channel_that_had_no_confirms(rabbitmq_url: str, channel: Any) -> None:
    publish(channel)
    with channel_to(rabbitmq_url) as other:
        bare = other.connection.channel()
        again(bare, take(bare))
    assert original(*take(channel)[:2], topology=FAST).attempt == 1
    assert ready(channel, QUEUE) == 0


def test_beyond_the_limit_a_message_goes_to_the_error_queue_with_the_reason(channel: Any) -> None:
    make_queue(channel, "error")
    publish(channel, headers={"kind": "order"}, expiration="60000")
    results = []
    for _ in range(3):
        try:
            raise ValueError("no such customer")
        except ValueError as error:
            results.append(again(channel, take(channel), limit=2, error_queue="error", error=error))
    assert results == [RetryResult.DELAYED, RetryResult.DELAYED, RetryResult.FAILED]
    method, properties, body = take(channel, "error")
    headers = properties.headers
    assert body == b"body"
    assert headers[names.EXCEPTION_TYPE] == "builtins.ValueError"
    assert headers[names.EXCEPTION_MESSAGE] == "no such customer"
    assert "test_native_retry" in headers[names.STACK_TRACE]
    assert (headers[names.FAILED_QUEUE], headers[names.FAILURE_COUNT]) == (QUEUE, 3)
    assert (headers["kind"], headers["delaystore.expiration"], properties.expiration) == ("order", "60000", None)
    assert not [name for name in headers if name.startswith(("x-death", "x-first", "x-last"))]
    first = original(method, properties, topology=FAST)
    assert (first.exchange, first.routing_key, first.attempt) == ("sales", "orders.created", 0)
    assert ready(channel, QUEUE) == 0


def test_a_message_returned_from_the_error_queue_begins_anew(channel: Any) -> None:
    make_queue(channel, "error")
    publish(channel, expiration="50", headers={TIME_SENT: time_sent_text(datetime.now(UTC))})
    again(channel, take(channel), limit=0, error_queue="error")
    _, properties, body = take(channel, "error")
    time.sleep(0.1)
    channel.basic_publish("", QUEUE, body, properties)
    assert again(channel, take(channel), limit=1, error_queue="error") is RetryResult.DELAYED
    first = original(*take(channel)[:2], topology=FAST)
    assert (first.exchange, first.routing_key, first.attempt) == ("sales", "orders.created", 1)


def test_beyond_the_limit_a_message_fails_even_where_the_delay_is_too_long(channel: Any) -> None:
    make_queue(channel, "error")
    publish(channel)
    assert again(channel, take(channel), delay=2.0**30, limit=0, error_queue="error") is RetryResult.FAILED
    take(channel, "error")
    assert ready(channel, QUEUE) == 0


def test_an_error_that_is_no_unicode_text_is_told_with_escapes(channel: Any) -> None:
    make_queue(channel, "error")
    publish(channel)
    again(channel, take(channel), limit=0, error_queue="error", error=ValueError("no file b\udcffd"))
    headers = take(channel, "error")[1].headers
    assert headers[names.EXCEPTION_MESSAGE] == r"no file b\udcffd"
    assert headers[names.STACK_TRACE] == "ValueError: no file b\\udcffd\n"


@pytest.mark.parametrize("expired", list(Expired))
def test_a_message_whose_time_to_live_would_end_is_dropped_or_dead_lettered(channel: Any, expired: Expired) -> None:
    make_queue(channel, "dead")
    make_queue(channel, "short", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    sent = time_sent_text(datetime.now(UTC) - timedelta(seconds=50))
    channel.basic_publish("", "short", b"", pika.BasicProperties(expiration="60000", headers={TIME_SENT: sent}))
    eleven = custom("eleven", levels=4)
    assert again(channel, take(channel, "short"), queue="short", topology=eleven, delay=11, expired=expired) is (
        RetryResult.EXPIRED
    )
    leave_only(channel, "dead", 1 if expired is Expired.DEAD_LETTER else 0)
    assert ready(channel, "short") == 0


def test_a_message_that_came_back_too_late_is_settled_before_it_is_handled(channel: Any) -> None:
    publish(channel, expiration="400")
    assert not settle_expired(channel, *(message := take(channel))[:2])
    assert again(channel, message, delay=0.1) is RetryResult.DELAYED
    leave_only(channel, QUEUE, 1)
    time.sleep(0.4)
    assert settle_expired(channel, *take(channel)[:2])
    assert ready(channel, QUEUE) == 0


def test_time_to_live_is_counted_from_the_timestamp_where_there_is_one(channel: Any) -> None:
    publish(channel, expiration="60000", timestamp=int(time.time()) - 70)
    assert again(channel, take(channel)) is RetryResult.EXPIRED
    publish(channel, expiration="60000", timestamp=int(time.time()) - 50)
    assert again(channel, take(channel)) is RetryResult.DELAYED
    expires = original(*take(channel)[:2], topology=FAST).expires
    assert expires is not None
    assert 5 < (expires - datetime.now(UTC)).total_seconds() < 12


def test_headers_say_when_a_message_is_due_for_tools_of_nservicebus(channel: Any) -> None:
    sent = datetime.now(UTC) - timedelta(seconds=100)
    publish(channel, headers={TIME_SENT: time_sent_text(sent)})
    again(channel, take(channel))
    headers = take(channel)[1].headers
    assert headers[TIME_SENT] == time_sent_text(sent)
    assert 101 <= headers[DELAY_IN_SECONDS] < 120


def test_copies_for_others_are_not_sent_again(channel: Any) -> None:
    make_queue(channel, "b")
    channel.queue_bind("b", "sales", "b")
    channel.queue_bind("b", FAST.delivery, "#.b")  # as NServiceBus binds
    publish(channel, headers={"CC": ["b"]})
    leave_only(channel, "b", 1)
    again(channel, take(channel))
    first = original(*take(channel)[:2], topology=FAST)
    assert first.properties.headers["CC"] == ["b"]
    assert ready(channel, "b") == 1


def test_a_message_with_another_users_id_is_retried(rabbitmq: RabbitMQVhosts, rabbitmq_url: str, channel: Any) -> None:
    vhost, name = rabbitmq.vhost_name(rabbitmq_url), "colleague"
    rabbitmq.request("PUT", f"/api/users/{name}", {"password": "secret", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    rabbitmq.request("PUT", f"/api/permissions/{vhost}/{name}", everything)
    try:
        parameters = pika.URLParameters(rabbitmq_url)
        parameters.credentials = pika.PlainCredentials(name, "secret")
        with pika.BlockingConnection(parameters) as connection:
            publish(connection.channel(), user_id=name)
        again(channel, take(channel))
        again(channel, take(channel))
        assert original(*take(channel)[:2], topology=FAST).properties.user_id == name
    finally:
        rabbitmq.request("DELETE", f"/api/users/{name}")


@pytest.mark.parametrize("topology", [celery(), FAST], ids=["another", "the same"])
def test_digits_of_a_cascade_that_a_message_came_through_are_taken_off(channel: Any, topology: CascadeTopology) -> None:
    if topology is not FAST:
        declare(channel, topology.layout())
    make_destination(channel, topology, QUEUE)
    exchange, key = topology.route(0, QUEUE)
    channel.basic_publish(exchange, key, b"", mandatory=True)
    again(channel, take(channel))
    again(channel, take(channel))
    method, properties, _ = take(channel)
    first = original(method, properties, topology=FAST)
    assert (first.exchange, first.routing_key) == ("", QUEUE)
    assert method.routing_key.count(".") == FAST.levels + 1


def test_a_connection_that_is_lost_already_is_named_as_the_reason(rabbitmq_url: str) -> None:
    with channel_to(rabbitmq_url) as channel:
        make_queue(channel, QUEUE)
        channel.basic_publish("", QUEUE, b"")
        message = take(channel)
    with pytest.raises(TransportUnavailableError):
        again(channel, message)


def test_without_a_cascade_the_message_stays_in_its_queue(rabbitmq_url: str, channel: Any) -> None:
    publish(channel)
    with pytest.raises(TransportError, match=r"closed the channel.*delaystore cascade create"):
        again(channel, take(channel), topology=custom("missing", levels=2), bind=False)
    with channel_to(rabbitmq_url) as other:
        leave_only(other, QUEUE, 1)


def test_without_an_error_queue_the_message_stays_unacknowledged(channel: Any) -> None:
    publish(channel)
    message = take(channel)
    with pytest.raises(TransportError, match="error queue is missing"):
        again(channel, message, limit=0, error_queue="missing")
    channel.basic_nack(message[0].delivery_tag)
    leave_only(channel, QUEUE, 1)


def test_mistakes_leave_the_message_unacknowledged(channel: Any) -> None:
    publish(channel)
    message = take(channel)
    with pytest.raises(UnsupportedMessageError, match="beyond the maximum"):
        again(channel, message, delay=timedelta(days=1))
    with pytest.raises(ConfigurationError, match="needs an error_queue"):
        again(channel, message, limit=3)
    with pytest.raises(ConfigurationError, match="limit must be a whole number"):
        again(channel, message, limit=-1, error_queue="error")
    with pytest.raises(ConfigurationError, match="BlockingConnection"):
        again(object(), message)
    channel.basic_nack(message[0].delivery_tag)
    leave_only(channel, QUEUE, 1)


def test_explanations_are_shortened_to_what_fits_a_frame(channel: Any) -> None:
    make_queue(channel, "error")
    publish(channel, headers={"large": "x" * 110_000})
    again(channel, take(channel), limit=0, error_queue="error", error=ValueError("y" * 100_000))
    headers = take(channel, "error")[1].headers
    assert headers["large"] == "x" * 110_000
    assert headers[names.EXCEPTION_MESSAGE] == "y" * len(headers[names.EXCEPTION_MESSAGE])


class Asynchronous:
    """A consumer on a SelectConnection that delays the one message it gets, as the docstring of next_step says."""

    def __init__(self, parameters: pika.URLParameters) -> None:
        self.connection: Any = pika.SelectConnection(parameters, on_open_callback=self._opened)

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._prepare)

    def _prepare(self, channel: Any) -> None:
        channel.confirm_delivery(lambda _: self._confirmed(channel))
        channel.basic_consume(QUEUE, self._handle)

    def _handle(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        step = next_step(method, properties, 0.5, queue=QUEUE, topology=FAST)
        assert step.address is not None
        self._tag = method.delivery_tag
        channel.basic_publish(*step.address, body, step.properties, mandatory=True)

    def _confirmed(self, channel: Any) -> None:
        channel.basic_ack(self._tag)
        self.connection.add_on_close_callback(lambda *_: self.connection.ioloop.stop())
        self.connection.close()


def test_an_asynchronous_consumer_publishes_the_next_step_itself(rabbitmq_url: str, channel: Any) -> None:
    for binding in FAST.destination_bindings(QUEUE):
        channel.queue_bind(binding.destination, binding.source, binding.routing_key)
    publish(channel)
    loop = Asynchronous(pika.URLParameters(rabbitmq_url)).connection.ioloop
    loop.start()
    loop.close()
    assert original(*take(channel)[:2], topology=FAST).attempt == 1
    assert ready(channel, QUEUE) == 0
