"""Messages of one id are stored in the order of their arrival, whatever keeps the first of them back."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from delaystore.breakers import RepeatedFailuresOverTimeCircuitBreaker, StoreCalls
from delaystore.calls import StopFlag
from delaystore.delivery import DelayedDelivery
from delaystore.errors import StoreError
from delaystore.ingress import _entries as unacknowledged
from delaystore.ingress._entries import IngestEntry, IngestResult, UnacknowledgedEntries
from delaystore.ingress._intake import BatchProcessor, Passthrough
from delaystore.ingress._storing import ORIGINAL_MESSAGE_ID, EntryStorage
from delaystore.ingress.reading.incoming import IncomingMessage
from delaystore.ingress.reading.reader import IncomingReader
from delaystore.ingress.rejected import RejectedQueue
from delaystore.ingress.settings import IngressOnDuplicate, IngressSettings
from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.stores.records import Way
from delaystore.transports.rabbitmq.raw import RawProperties

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
RULES = pytest.mark.parametrize("rule", list(IngressOnDuplicate))


class Store(InMemoryDelayedMessageStore):
    """Fails on bodies in `poison`."""

    key_timeout = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.poison: set[bytes] = set()
        self.initialize("sales", TransactionMode.NONE)

    def store_many(self, messages: Any, *args: Any) -> int:
        messages = list(messages)
        if self.poison & {message.body for message in messages}:
            raise StoreError("a bug of the database")
        return super().store_many(messages, *args)


class Nothing:
    """Stands in for what has nothing to do here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Reader:
    """The routing key is the message_id."""

    def read(self, incoming: IncomingMessage, came: datetime) -> DelayedMessage:
        return message(str(incoming.routing_key), incoming.body)


class Breaker:
    """Asks for no pause."""

    def failure(self, error: Exception) -> float:
        return 0.0

    def success(self) -> None:
        pass


class Ground:
    """What a session of an ingress does, without a broker."""

    def __init__(self, rule: IngressOnDuplicate) -> None:
        self.store = Store()
        delivery = DelayedDelivery("sales", self.store)
        breaker = RepeatedFailuresOverTimeCircuitBreaker("storing", timedelta(minutes=1))
        changes = delivery.changes_as(Way.INGRESS)
        storing = EntryStorage(delivery, changes, StoreCalls(breaker, timedelta(minutes=1)), rule, lambda _: None)
        reader, nothing = cast(IncomingReader, Reader()), Nothing()
        direct, rejecting = cast(Passthrough, nothing), cast(RejectedQueue, nothing)
        quiet = cast(RepeatedFailuresOverTimeCircuitBreaker, Breaker())
        self.intake = BatchProcessor(delivery, changes, reader, storing, direct, rejecting, quiet, StopFlag())
        self.unacknowledged = UnacknowledgedEntries(IngressSettings(queue="orders"))
        self.entries: list[IngestEntry] = []

    def arrive(self, *bodies: bytes, message_id: str = "a", message_ids: Sequence[str] = ()) -> None:
        """A batch; all of them have one id unless `message_ids` says otherwise."""
        tag = len(self.entries)
        arrivals = [
            IncomingMessage("orders", "", one, RawProperties.of({}), body, False, tag + number)
            for number, (body, one) in enumerate(zip(bodies, message_ids or [message_id] * len(bodies), strict=True))
        ]
        new = [IngestEntry(arrival, 0.0) for arrival in arrivals]
        self.entries += new
        self.take_in(new)

    def try_again(self) -> None:
        """Try all unacknowledged entries again."""
        self.take_in(self.unacknowledged.to_try())

    def take_in(self, entries: Sequence[IngestEntry]) -> None:
        trouble = self.intake.process(entries, self.unacknowledged.ids)
        if trouble is not None:
            self.unacknowledged.add([entry for entry in entries if entry.result is None], trouble)

    @property
    def fates(self) -> list[IngestResult | None]:
        return [entry.result for entry in self.entries]

    @property
    def waiting(self) -> list[bytes]:
        """Bodies, those first that have their own id."""
        return [
            each.body for each in sorted(self.store.list().messages, key=lambda one: ORIGINAL_MESSAGE_ID in one.headers)
        ]


@pytest.fixture
def ground(rule: IngressOnDuplicate, monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setattr(unacknowledged, "_TRY_EVERY", 0.0)
    return Ground(rule)


def message(message_id: str, body: bytes) -> DelayedMessage:
    return DelayedMessage(message_id=message_id, destination="q", due_time=NOON, body=body)


EXPECTED = {IngressOnDuplicate.BOTH: [b"1", b"2"], IngressOnDuplicate.KEEP: [b"1"], IngressOnDuplicate.REPLACE: [b"2"]}


@RULES
def test_what_arrives_while_an_earlier_one_is_unacknowledged_is_stored_after_it(
    ground: Ground, rule: IngressOnDuplicate
) -> None:
    ground.store.store(message("a", b"0"))
    with ExitStack() as dispatcher:
        block = dispatcher.enter_context(ground.store.transaction())
        block.remove_many(block.fetch_due(NOON, 1))
        ground.arrive(b"1")
        assert ground.fates == [None]
    ground.arrive(b"2")
    ground.arrive(b"other", message_id="b")
    assert ground.fates[2] is IngestResult.STORED, "others go on"
    assert ground.store.cancel("b")
    for _ in range(3):
        ground.try_again()
    assert None not in ground.fates
    assert ground.waiting == EXPECTED[rule]
    assert len(ground.unacknowledged) == 0


@RULES
def test_one_batch_is_stored_in_order_though_a_claim_ends_while_it_is_tried_again(
    ground: Ground, rule: IngressOnDuplicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails on the batch after its first look; at the second look the claim is still there."""
    ground.store.store(message("a", b"0"))
    with ExitStack() as dispatcher:
        block = dispatcher.enter_context(ground.store.transaction())
        claimed = block.fetch_due(NOON, 1)
        looks = []
        store_many, get_unclaimed = ground.store.store_many, ground.store.get_unclaimed

        def fail_once_then_settle(messages: Any, *args: Any) -> int:
            messages = list(messages)
            if len(looks) == 1:
                looks.append("failed")
                raise StoreError("an outage in the middle of a batch")
            if len(looks) > 2 and "settled" not in looks and any(each.body == b"2" for each in messages):
                looks.append("settled")
                block.remove_many(claimed)
                dispatcher.close()
            return store_many(messages, *args)

        def look(message_ids: Sequence[str]) -> Any:
            found = get_unclaimed(message_ids)
            looks.append("looked")
            return found

        monkeypatch.setattr(ground.store, "store_many", fail_once_then_settle)
        monkeypatch.setattr(ground.store, "get_unclaimed", look)
        ground.arrive(b"1", b"between", b"2", b"after", message_ids="abac")
        if "settled" not in looks:
            block.remove_many(claimed)
    for _ in range(3):
        ground.try_again()
    assert ground.store.cancel("b")
    assert ground.store.cancel("c")
    assert ground.waiting == EXPECTED[rule]


@RULES
@pytest.mark.parametrize("tries", [0, 1, 2])
@pytest.mark.parametrize("at_once", [False, True])
def test_what_arrives_while_the_store_fails_on_an_earlier_one_is_stored_after_it(
    ground: Ground, rule: IngressOnDuplicate, tries: int, at_once: bool
) -> None:
    ground.store.poison.add(b"1")
    for bodies in [(b"1", b"2")] if at_once else [(b"1",), (b"2",)]:
        ground.arrive(*bodies)
    for _ in range(tries):
        ground.try_again()
    assert ground.fates == [None, None] or rule is IngressOnDuplicate.REPLACE
    ground.store.poison.clear()
    for _ in range(3):
        ground.try_again()
    assert None not in ground.fates
    assert ground.waiting == EXPECTED[rule]


@pytest.mark.parametrize("rule", [IngressOnDuplicate.BOTH, IngressOnDuplicate.KEEP])
def test_what_stays_behind_a_message_is_stored_once_that_is_rejected(ground: Ground) -> None:
    ground.store.poison.add(b"1")
    ground.arrive(b"1", b"2")
    ground.entries[0].given_up = True
    ground.arrive(b"other", message_id="b")
    ground.store.cancel("b")
    for _ in range(3):
        ground.try_again()
    assert ground.entries[0].objection is not None
    assert ground.waiting == [b"2"]


@RULES
def test_what_goes_back_to_its_queue_takes_with_it_what_stays_behind_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.store.poison.add(b"1")
    ground.arrive(b"1")
    ground.arrive(b"2")
    ground.entries[1].at = float("inf")
    assert ground.unacknowledged.overdue() == [0, 1]
    assert len(ground.unacknowledged) == 0


@RULES
def test_a_batch_is_not_held_up_by_a_claimed_one(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "key_timeout", 5.0)
    ground.store.store(message("a", b"0"))
    with ground.store.transaction() as dispatcher:
        assert dispatcher.fetch_due(NOON, 1)
        began = time.monotonic()
        ground.arrive(b"1")
        assert time.monotonic() - began < 2
    assert ground.fates == [None]
