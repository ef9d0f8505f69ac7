"""Requests about single messages, many in one transaction, on each database and in memory."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from delaystore import DelayedDelivery, ManagementOutcome, SqlDelayedMessageStore
from delaystore.errors import InvalidMessageError, StoreUnavailableError
from delaystore.operations import Operations
from delaystore.operations.changes import Actor, CancelRequest, LookUpRequest, RescheduleRequest
from delaystore.stores import InMemoryDelayedMessageStore

DONE, NOT_FOUND, HELD = ManagementOutcome.DONE, ManagementOutcome.NOT_FOUND, ManagementOutcome.BEING_DISPATCHED
LATER = datetime(2040, 1, 31, 9, tzinfo=UTC)
ADA, BEN = "ada", "ben"


@pytest.fixture
def delivery(database_url: str) -> Iterator[DelayedDelivery]:
    with DelayedDelivery("sales", SqlDelayedMessageStore(database_url)) as delivery:
        yield delivery


def fill(delivery: DelayedDelivery, *ids: str, **fields: Any) -> None:
    for message_id in ids:
        delivery.send("billing", b"pay", at=LATER, message_id=message_id, **fields)


def noted(operations: Operations) -> list[tuple[str, str, str, int]]:
    return [(each.by, each.action, each.about, each.count) for each in operations.changes()]


def check_requests(delivery: DelayedDelivery) -> None:
    fill(delivery, "a", "b")
    fill(delivery, "c", key="order 7")
    sooner = datetime(2039, 1, 1, tzinfo=UTC)
    results = delivery.operations.do_all(
        [
            CancelRequest(message_id="a", by=ADA),
            CancelRequest(message_id="a", by=BEN),
            LookUpRequest(message_id="a", by=BEN),
            RescheduleRequest(key="order 7", by=BEN, at=sooner),
            LookUpRequest(key="order 7", by=BEN),
            CancelRequest(key="order 8", by=ADA),
            LookUpRequest(key="order 8", by=ADA),
            RescheduleRequest(message_id="nobody", by=ADA, at=sooner),
        ]
    )
    outcomes = [(each.outcome, each.message_id) for each in results]
    assert outcomes == [
        (DONE, "a"),
        (NOT_FOUND, None),
        (NOT_FOUND, None),
        (DONE, "c"),
        (DONE, "c"),
        (NOT_FOUND, None),
        (NOT_FOUND, None),
        (NOT_FOUND, None),
    ]
    assert results[3].due_time == sooner
    assert results[4].message is not None
    assert (results[4].message.due_time, results[4].message.key) == (sooner, "order 7")
    assert noted(delivery.operations) == [
        (BEN, "reschedule", "message c from 2040-01-31 09:00:00Z to 2039-01-01 00:00:00Z", 1),
        (ADA, "cancel", "message a from 2040-01-31 09:00:00Z", 1),
    ]
    assert delivery.get("a") is None
    assert delivery.get("b") is not None


def test_requests_are_done_in_their_order_and_noted(delivery: DelayedDelivery) -> None:
    check_requests(delivery)


def test_requests_to_a_store_in_memory_are_done_as_well() -> None:
    with DelayedDelivery("sales", InMemoryDelayedMessageStore()) as delivery:
        check_requests(delivery)


def test_what_cannot_be_asked_undoes_all(delivery: DelayedDelivery) -> None:
    fill(delivery, "a")
    with pytest.raises(InvalidMessageError):
        delivery.operations.do_all([CancelRequest(message_id="a", by=ADA), CancelRequest(message_id="", by=ADA)])
    assert delivery.get("a") is not None
    assert noted(delivery.operations) == []


def test_a_commit_that_fails_leaves_all_as_it_was_and_notes_nothing(
    delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(delivery, "a")

    class Broken(CancelRequest):
        def _do(self, store: Any, message_id: str, actor: Actor) -> Any:
            super()._do(store, message_id, actor)
            raise StoreUnavailableError("gone")

    with pytest.raises(StoreUnavailableError):
        delivery.operations.do_all([CancelRequest(message_id="a", by=ADA), Broken(message_id="a", by=ADA)])
    assert delivery.get("a") is not None
    assert noted(delivery.operations) == []


def test_what_a_dispatcher_has_is_not_waited_for(delivery: DelayedDelivery) -> None:
    fill(delivery, "later")
    delivery.send("billing", b"pay", delay=0, message_id="due", key="k")
    store: Any = delivery._store
    with store.transaction() as claiming:
        assert [each.message_id for each in claiming.fetch_due(store.now(), 5)] == ["due"]
        claims: list[Any] = [
            CancelRequest(message_id="due", by=ADA),
            RescheduleRequest(key="k", by=ADA, at=LATER),
            CancelRequest(message_id="later", by=ADA),
        ]
        results = delivery.operations.do_all(claims)
    assert [(each.outcome, each.message_id) for each in results] == [(HELD, "due"), (HELD, "due"), (DONE, "later")]
    assert [about for _, _, about, _ in noted(delivery.operations)] == ["message later from 2040-01-31 09:00:00Z"]


def test_as_many_are_done_as_bodies_may_be_in_memory(delivery: DelayedDelivery) -> None:
    fill(delivery, *"abcd")
    requests = [LookUpRequest(message_id=name, by=ADA) for name in "abcd"]
    assert len(delivery.operations.do_all(requests, most_bytes=6)) == 2
    assert len(delivery.operations.do_all(requests, most_bytes=1)) == 1
    assert len(delivery.operations.do_all(requests)) == 4
    assert delivery.operations.do_all([]) == []


def test_an_earlier_time_wakes_the_dispatcher_of_this_process(delivery: DelayedDelivery) -> None:
    fill(delivery, "a", "b")
    woken: list[Any] = []
    delivery._wake_up = woken.append  # type: ignore[method-assign]
    delivery._renew_after_fork()
    sooner = datetime(2039, 1, 1, tzinfo=UTC)
    requests = [RescheduleRequest(message_id=name, by=ADA, at=at) for name, at in (("a", LATER), ("b", sooner))]
    delivery.operations.do_all(requests)
    assert woken == [sooner]
