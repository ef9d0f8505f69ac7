"""Why a message is not there yet stands beside it, on each database."""

from datetime import timedelta

from delaystore.dispatcher import Dispatcher
from delaystore.stores import SqlDelayedMessageStore
from delaystore.testing import RecordingTransport
from delaystore.transports.abc import Outcome, OutcomeKind
from tests.dispatching import REFUSED, UNCONFIRMED, UNROUTABLE, settings
from tests.integration.sql_stores import message


def last_failure(store: SqlDelayedMessageStore, message_id: str) -> tuple[int, str, str]:
    found = store.get(message_id)
    assert found is not None
    last = found.failures[-1]
    assert timedelta(0) <= store.now() - last.at < timedelta(minutes=5)
    return found.failure_count, last.kind, last.reason


def test_each_kind_of_failure_is_kept_with_its_reason(store: SqlDelayedMessageStore) -> None:
    transport = RecordingTransport()
    transport.outcomes.update(
        full=REFUSED,
        nowhere=UNROUTABLE,
        error=Outcome(OutcomeKind.REFUSED, "it is full, too"),
        silent=UNCONFIRMED,
        leaderless=Outcome(OutcomeKind.UNAVAILABLE, "its leader is gone\nsince 12:00"),
    )
    now = store.now()
    store.store_many(message(now, -1, name, destination=name) for name in ("full", "nowhere", "silent", "leaderless"))
    store.store(message(now, -1, "good"))
    report = Dispatcher(store, transport, settings(max_body_bytes=1000)).dispatch_due()  # one batch
    assert (report.delivered, report.failed, report.deferred) == (1, 2, 2)
    assert last_failure(store, "full") == (1, "Refused", "the queue is full")
    assert last_failure(store, "nowhere") == (
        *(1, "Unroutable"),
        "no such queue; the error queue: refused: it is full, too",
    )
    assert last_failure(store, "silent") == (1, "Unconfirmed", "no answer in time")
    assert last_failure(store, "leaderless") == (1, "Unavailable", "its leader is gone since 12:00")
    assert store.count_failing(10) == 4


def test_failures_add_up(store: SqlDelayedMessageStore) -> None:
    transport = RecordingTransport()
    store.store(message(store.now(), -1, "a", destination="full"))
    dispatcher = Dispatcher(store, transport)
    for reason in ("the queue is full", "its disk is full"):
        transport.outcomes["full"] = Outcome(OutcomeKind.REFUSED, reason)
        assert dispatcher.dispatch_due().failed == 1
        found = store.get("a")
        assert found is not None
        with store.transaction() as transaction:  # as if its time had come
            (claimed,) = transaction.fetch_due(found.next_attempt, 1)
            transaction.postpone([(claimed, store.now() - timedelta(seconds=1))])
    found = store.get("a")
    assert found is not None
    assert [each.reason for each in found.failures] == ["the queue is full", "its disk is full"]
