"""What a nack and a return mean: a broker that answers as told, and queues that stand as told."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from threading import Lock
from typing import Any

import pytest
from pika import spec

from delaystore.errors import TransportSetupError
from delaystore.message import DelayedMessage
from delaystore.text import Address
from delaystore.transports import RabbitMQTransport
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind
from delaystore.transports.rabbitmq.channels import NACKED, InFlightBatch
from delaystore.transports.rabbitmq.publication import Publication
from delaystore.transports.rabbitmq.publisher import PublishedBatch, look_at_all, of_return
from delaystore.transports.rabbitmq.queues import QueueAvailability, QueueLook, queue_exists
from tests.servers.scripted_broker import HANDSHAKE, ScriptedBroker

LONG = 60.0
DOWN = "NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible"
MISSING = "NOT_FOUND - no queue 'q' in vhost '/'"


class Queue:
    """What a queue answers: to publishes one after the other, and to looks."""

    def __init__(self) -> None:
        self.confirms: list[bool] = []
        """False: a nack. The last one is for all that follow."""
        self.ready = 0
        self.error: str | None = None
        self.silent = False
        self.looks = 0
        self.tags: list[int] = []

    def publish(self, method: Any, tag: int, _say: Callable[[Any], None]) -> Any:
        self.tags.append(tag)
        confirm = self.confirms.pop(0) if len(self.confirms) > 1 else self.confirms[0]
        return spec.Basic.Ack(tag) if confirm else spec.Basic.Nack(tag)

    def declare(self, method: Any) -> Any:
        self.looks += 1
        if self.silent:
            return None
        if self.error is not None:
            return spec.Channel.Close(404, self.error, 50, 10)
        return spec.Queue.DeclareOk(method.queue, self.ready, 0)


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def transport(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Iterator[RabbitMQTransport]:
    monkeypatch.setattr("delaystore.transports.rabbitmq._transport.LOOK_SECONDS", 0.2)
    answers = {
        **HANDSHAKE,
        spec.Confirm.Select: lambda _: spec.Confirm.SelectOk(),
        spec.Basic.Publish: queue.publish,
        spec.Queue.Declare: queue.declare,
    }
    with ScriptedBroker(answers) as broker, closing(RabbitMQTransport(broker.url)) as transport:
        yield transport


def sent(transport: RabbitMQTransport, destination: str = "q", count: int = 1) -> list[Outcome]:
    batch = [
        DelayedMessage(message_id=f"{n}", destination=destination, due_time=datetime.now(UTC), body=b"")
        for n in range(count)
    ]
    return list(transport.send(batch, None, LONG))


def kinds(outcomes: Iterable[Outcome]) -> set[OutcomeKind]:
    return {outcome.kind for outcome in outcomes}


def test_a_queue_that_nacks_and_shows_no_messages_may_have_lost_its_leader(
    transport: RabbitMQTransport, queue: Queue
) -> None:
    queue.confirms = [False]
    (outcome,) = sent(transport)
    assert outcome.kind is OutcomeKind.UNAVAILABLE
    assert "may have lost its leader" in outcome.reason


def test_a_queue_that_holds_messages_and_nacks_again_is_full(transport: RabbitMQTransport, queue: Queue) -> None:
    queue.confirms, queue.ready = [False], 7
    outcomes = sent(transport, count=10)
    assert kinds(outcomes) == {OutcomeKind.REFUSED}
    assert "holds 7 messages" in outcomes[0].reason
    assert queue.looks == 1


def test_a_queue_that_has_a_leader_again_takes_what_it_had_nacked(transport: RabbitMQTransport, queue: Queue) -> None:
    queue.confirms, queue.ready = [False, True], 7
    assert kinds(sent(transport)) == {OutcomeKind.DELIVERED}


@pytest.mark.parametrize("trouble", ["node down", "silent"])
def test_a_queue_that_nacks_and_cannot_be_looked_at_is_not_known_to_refuse(
    transport: RabbitMQTransport, queue: Queue, trouble: str
) -> None:
    queue.confirms, queue.silent = [False], trouble == "silent"
    queue.error = DOWN if trouble == "node down" else None
    assert kinds(sent(transport)) == {OutcomeKind.UNAVAILABLE}


def test_an_exchange_whose_queues_nobody_knows_is_never_known_to_refuse(
    transport: RabbitMQTransport, queue: Queue
) -> None:
    queue.confirms, queue.ready = [False], 7
    assert kinds(sent(transport, "/exchanges/amq.topic/key")) == {OutcomeKind.UNAVAILABLE}
    assert queue.looks == 0


def test_a_channel_that_was_nacked_on_is_not_used_again(transport: RabbitMQTransport, queue: Queue) -> None:
    """RabbitMQ 3.10 leaves what follows on it without an answer, though the queue has a leader again."""
    queue.confirms = [True, False, True]
    for _ in range(4):
        sent(transport)
    assert queue.tags == [1, 2, 1, 2]


RETURNED = Outcome(OutcomeKind.UNROUTABLE, "returned by the broker: NO_ROUTE")


@pytest.mark.parametrize(
    ("look", "kind", "why"),
    [
        (QueueLook(QueueAvailability.MISSING, reason=MISSING), OutcomeKind.UNROUTABLE, "no such queue"),
        (None, OutcomeKind.UNROUTABLE, "no queue is bound to the exchange"),
        (QueueLook(QueueAvailability.DOWN, reason=DOWN), OutcomeKind.UNAVAILABLE, DOWN),
        (QueueLook(QueueAvailability.UNKNOWN, reason="no answer"), OutcomeKind.UNAVAILABLE, "no answer"),
        (QueueLook(QueueAvailability.THERE), OutcomeKind.UNAVAILABLE, "although the queue exists"),
    ],
)
def test_a_return_is_final_only_where_the_queue_is_missing(look: QueueLook | None, kind: OutcomeKind, why: str) -> None:
    outcome = of_return(RETURNED, look)
    assert outcome.kind is kind
    assert RETURNED.reason in outcome.reason
    assert why in outcome.reason


def test_looks_have_one_deadline_together(
    transport: RabbitMQTransport, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaystore.transports.rabbitmq.publisher.LOOK_SECONDS", 0.3)
    queue.silent = True
    addresses = [Address("", f"q{n}") for n in range(1000)]
    looks = look_at_all(transport._looking, addresses)
    assert {look.availability for look in looks.values()} == {QueueAvailability.UNKNOWN}
    assert queue.looks <= 10


@pytest.mark.parametrize(
    "text",
    [
        DOWN,
        DOWN.replace("'q'", "'no queue'"),
        "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor",
        "NOT_FOUND - queue 'q' in vhost '/' has crashed and failed to restart",
        "NOT_FOUND - failed to perform operation on queue 'q' in vhost '/' due to timeout",
    ],
)
def test_a_queue_that_is_not_there_now_is_not_taken_to_be_missing(
    transport: RabbitMQTransport, queue: Queue, text: str
) -> None:
    queue.error = text
    with pytest.raises(TransportSetupError, match="cannot be looked up"):
        queue_exists(transport._looking, "q")
    queue.error = MISSING
    assert not queue_exists(transport._looking, "q")


class Turns:
    """In place of an owner: a queue that answers a nack to the first publish, and returns the second."""

    def __init__(self) -> None:
        self.published = 0

    def wait_ready(self, deadline: float) -> None:
        return None

    def publish(self, batch: InFlightBatch) -> None:
        self.published += 1
        batch.sent(1)
        if self.published == 2:
            batch.returned("0", Address("", "q"), "312 NO_ROUTE")
        batch.answered(0, NACKED if self.published == 1 else DELIVERED, multiple=False)
        batch.end()


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        (QueueLook(QueueAvailability.DOWN, reason=DOWN), OutcomeKind.UNAVAILABLE),
        (QueueLook(QueueAvailability.MISSING, reason=MISSING), OutcomeKind.UNROUTABLE),
    ],
)
def test_what_comes_back_after_a_nack_is_looked_at_too(second: QueueLook, kind: OutcomeKind) -> None:
    """The queue was full, and its node went down before the second publish."""
    message = DelayedMessage(message_id="0", destination="q", due_time=datetime.now(UTC), body=b"")
    looks = [QueueLook(QueueAvailability.THERE, ready=7), second]
    owner: Any = Turns()
    sending = PublishedBatch(
        [Publication(message, Address("", "q"))],
        LONG,
        lambda: owner,
        Lock(),
        lambda addresses: {address: looks.pop(0) for address in addresses},
    )
    assert kinds(sending.run()) == {kind}
    assert looks == []
