"""Messages that cannot be forwarded, in the middle of good ones."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest

from delaystore.dispatcher import Dispatcher
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.codec import decode_mapping
from delaystore.transports import Transport
from tests.faults.arrivals import assert_arrived, declare, drain, receive_all
from tests.faults.backlog import DESTINATION, ENDPOINT, ids, message, messages, open_store
from tests.faults.patience import PATIENCE, wait_until
from tests.long import long

RETRIES = 2
BATCH = 1000
GOOD = 4000
"""Batches grow from 64 to 1000: enough that a message in their middle is one of a thousand."""

BAD: dict[str, Callable[[], DelayedMessage]] = {
    "missing queue": lambda: message("nowhere"),
    "missing exchange": lambda: message("/exchanges/nowhere/key"),
    "bad expiration": lambda: message(properties={"expiration": "soon"}),
}
"""What `send` refuses, or cannot foresee: written to the store directly."""
ATTEMPTS = {"missing queue": 1, "missing exchange": 1, "bad expiration": 1 + RETRIES}

UNCARRIABLE: list[dict[str, Any]] = [
    {"price": 1.5, "not a number": [{"deep": -math.inf}]},
    {"whole": 2**63},
    {"decimal": Decimal("1234567890.12")},
    {"rounded decimal": Decimal("1." + 40 * "0" + "1")},
    {"microseconds": datetime(2027, 1, 1, 0, 0, 0, 1, tzinfo=UTC)},
    {"early": datetime(1969, 1, 1, tzinfo=UTC)},
    {"n" * 256: "a name"},
    {"BCC": ["taken away by the broker"], "bytes": b"\xff", "price": math.inf},
]
"""Headers of which some are not for AMQP, or not for pika."""


@pytest.fixture
def store(postgresql_url: str) -> Iterator[SqlDelayedMessageStore]:
    store = open_store(postgresql_url)
    yield store
    store.close()


@pytest.fixture
def transport(rabbitmq_transport: Transport) -> Transport:
    rabbitmq_transport.declare(DESTINATION)
    return rabbitmq_transport


@contextmanager
def dispatching(store: SqlDelayedMessageStore, transport: Transport, **settings: Any) -> Iterator[Dispatcher]:
    """A dispatcher at work, with short back-offs."""
    defaults = {"batch_size": BATCH, "max_body_bytes": 1024, "number_of_retries": RETRIES, "retry_span": 1}
    dispatcher = Dispatcher(store, transport, DelayedDeliverySettings(**{**defaults, **settings}), ENDPOINT)
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        assert dispatcher.stop(PATIENCE)


def delete(rabbitmq_url: str, queue: str) -> None:
    """Delete a queue, if it is there."""
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    connection.channel().queue_delete(queue)
    connection.close()


def store_in_the_middle(store: SqlDelayedMessageStore, *bad: DelayedMessage) -> list[str]:
    """Store good messages, with `bad` among them; the message_ids of the good ones."""
    before, after = messages(GOOD // 2), messages(GOOD // 2)
    store.store_many([*before, *bad, *after])
    return ids(before + after)


@pytest.mark.long_runs("bad expiration", "missing exchange")
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_message_alone_goes_to_the_error_queue(
    kind: str, store: SqlDelayedMessageStore, transport: Transport
) -> None:
    bad = BAD[kind]()
    good = store_in_the_middle(store, bad)
    with dispatching(store, transport):
        wait_until(lambda: store.count() == 0, "all are forwarded or moved")
    assert_arrived(drain(transport, DESTINATION), good, duplicates=ATTEMPTS[kind] * BATCH)
    [failed] = receive_all(transport, "error")
    assert failed.message_id == bad.message_id
    assert failed.body == bad.body
    assert failed.headers["NServiceBus.FailedQ"] == bad.destination
    assert failed.headers["NServiceBus.ExceptionInfo.Message"]
    assert failed.headers["delaystore.failure-count"] == ATTEMPTS[kind]


@pytest.mark.long
def test_headers_that_amqp_cannot_hold_are_text_in_the_error_queue(
    store: SqlDelayedMessageStore, transport: Transport
) -> None:
    bad = {(each := message(headers={"kind": "bill", **headers})).message_id: each for headers in UNCARRIABLE}
    good = store_in_the_middle(store, *bad.values())
    with dispatching(store, transport, number_of_retries=0):
        wait_until(lambda: store.count() == 0, "all are forwarded or moved")
    assert_arrived(drain(transport, DESTINATION), good)
    for failed in receive_all(transport, "error"):
        given = bad.pop(failed.message_id)
        assert failed.body == given.body
        assert failed.headers["kind"] == "bill"
        texts = decode_mapping(failed.headers["delaystore.raw-headers"])
        # BCC has another name in the error queue, where RabbitMQ would act upon it.
        kept = {"delaystore.failed-bcc" if name == "BCC" else name: each for name, each in given.headers.items()}
        assert {**failed.headers, **texts}.items() >= kept.items()
        assert "AMQP cannot hold header" in failed.headers["NServiceBus.ExceptionInfo.Message"]
    assert not bad


def test_a_property_that_amqp_cannot_hold_is_text_in_the_error_queue(
    store: SqlDelayedMessageStore, transport: Transport
) -> None:
    store.store(message(properties={"content_type": "text/plain", "type": "t" * 300}))
    with dispatching(store, transport, number_of_retries=0):
        wait_until(lambda: store.count() == 0, "it is moved")
    [failed] = receive_all(transport, "error")
    assert failed.properties["content_type"] == "text/plain"
    assert decode_mapping(failed.headers["delaystore.raw-properties"]) == {"type": "t" * 300}


@pytest.mark.long
def test_headers_too_large_for_a_frame_are_in_the_body_of_what_goes_to_the_error_queue(
    store: SqlDelayedMessageStore, transport: Transport
) -> None:
    bad = message(headers={"large": "x" * 200_000}, properties={"type": "order"})
    good = store_in_the_middle(store, bad)
    with dispatching(store, transport):
        wait_until(lambda: store.count() == 0, "all are forwarded or moved")
    assert_arrived(drain(transport, DESTINATION), good)
    [failed] = receive_all(transport, "error")
    assert failed.message_id == bad.message_id
    assert failed.headers["NServiceBus.FailedQ"] == bad.destination
    line = failed.body[: failed.headers["delaystore.headers-in-body"]]
    assert json.loads(line) == {"headers": bad.headers, "properties": bad.properties}
    assert failed.body.removeprefix(line) == bad.body


def test_all_kinds_at_once(store: SqlDelayedMessageStore, transport: Transport) -> None:
    bad = [make() for make in BAD.values() for _ in range(5)]
    good = store_in_the_middle(store, *bad)
    with dispatching(store, transport):
        wait_until(lambda: store.count() == 0, "all are forwarded or moved")
    assert_arrived(drain(transport, DESTINATION), good, duplicates=(1 + RETRIES) * BATCH)
    assert_arrived(drain(transport, "error"), ids(bad))


@pytest.mark.long
def test_a_full_queue_is_tried_again_until_it_has_room(
    store: SqlDelayedMessageStore, transport: Transport, rabbitmq_url: str
) -> None:
    declare(rabbitmq_url, "small", **{"max-length": 10, "overflow": "reject-publish"})
    many = messages(50, "small")
    good = store_in_the_middle(store, *many)
    arrived: list[str] = []
    with dispatching(store, transport, number_of_retries=100, retry_span=20):
        wait_until(lambda: store.count() <= 40, "the good ones are forwarded, and some of the others")
        while len(set(arrived)) < len(many):
            arrived += [each.message_id for each in receive_all(transport, "small")]
    assert store.count() == 0
    assert sorted(arrived) == sorted(ids(many))
    assert_arrived(drain(transport, DESTINATION), good)
    assert not drain(transport, "error")


@pytest.mark.long
def test_a_queue_that_stays_full_sends_its_messages_to_the_error_queue(
    store: SqlDelayedMessageStore, transport: Transport, rabbitmq_url: str
) -> None:
    declare(rabbitmq_url, "small", **{"max-length": 10, "overflow": "reject-publish"})
    many = messages(50, "small")
    good = store_in_the_middle(store, *many)
    with dispatching(store, transport):
        wait_until(lambda: store.count() == 0, "all are forwarded or moved")
    failed = receive_all(transport, "error")
    assert {each.headers["delaystore.failure-count"] for each in failed} == {1 + RETRIES}
    assert_arrived(drain(transport, "small") + Counter(each.message_id for each in failed), ids(many))
    assert_arrived(drain(transport, DESTINATION), good)


def missing(rabbitmq_url: str) -> None:
    """No error queue at all."""


def full(rabbitmq_url: str) -> None:
    """An error queue without room."""
    declare(rabbitmq_url, "error", **{"max-length": 0, "overflow": "reject-publish"})


@pytest.mark.parametrize("error_queue", [missing, long(full)])
def test_without_an_error_queue_a_bad_message_stays_and_good_ones_flow(
    error_queue: Callable[[str], None],
    store: SqlDelayedMessageStore,
    transport: Transport,
    rabbitmq_url: str,
) -> None:
    error_queue(rabbitmq_url)
    bad = [make() for make in BAD.values()]
    with dispatching(store, transport, automatic_setup=False):
        good = store_in_the_middle(store, *bad)
        wait_until(lambda: all(failures(store, each) > RETRIES for each in bad), "the bad ones are tried in vain")
        wait_until(lambda: store.count() == len(bad), "the good ones are forwarded")
        later = messages(100)
        store.store_many(later)
        wait_until(lambda: store.count() == len(bad), "and those after them")
        delete(rabbitmq_url, "error")
        declare(rabbitmq_url, "error")
        wait_until(lambda: store.count() == 0, "the error queue takes the bad ones")
    assert_arrived(drain(transport, "error"), ids(bad), duplicates=len(bad))
    assert_arrived(drain(transport, DESTINATION), good + ids(later), duplicates=20 * BATCH)


def test_an_error_queue_that_somebody_deletes_is_declared_again(
    store: SqlDelayedMessageStore,
    transport: Transport,
    rabbitmq_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("delaystore.dispatcher.error_queue.DECLARE_AGAIN", 1.0)
    with dispatching(store, transport):
        store.store(message("nowhere"))
        wait_until(lambda: store.count() == 0, "the error queue is there")
        delete(rabbitmq_url, "error")
        store.store(second := message("nowhere"))
        wait_until(lambda: store.count() == 0, "the error queue is there again")
    assert_arrived(drain(transport, "error"), ids([second]))


def failures(store: SqlDelayedMessageStore, message: DelayedMessage) -> int:
    """How often forwarding it has failed."""
    waiting = store.get(message.message_id)
    assert waiting is not None
    return waiting.failure_count
