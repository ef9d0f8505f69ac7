"""The conformance kit for stores: all its tests, and those of storing, due times and counts."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings

from delaystore.errors import DelaystoreError
from delaystore.filters import EVERYTHING
from delaystore.message import LATEST_DUE_TIME, DelayedMessage, KeyRule, OnKey
from delaystore.stores.abc import (
    DelayedMessageStore,
    KeyedDelayedMessageStore,
    ManagedDelayedMessageStore,
    ManagementOutcome,
)
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import Operation, OperationKind, OperationState
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import (
    FAR,
    HOUR,
    ME,
    NOON,
    SECOND,
    TICK,
    StoreTests,
    a_message,
    all_taken,
    assert_only,
    assert_same,
    claimed,
    eventually_next,
    exactly,
    ids,
    messages,
    repeated,
    search_all,
    some_messages,
)
from delaystore.testing._kit._batches_and_keys import BatchTests, KeyTests, TakenIdTests
from delaystore.testing._kit._concurrency import ConcurrencyTests, InfrastructureTests, SessionTests, TransactionTests
from delaystore.testing._kit._operations import ManagementTests, OperationTests, ShiftTests
from delaystore.testing._kit._settling import CrashTests, FailureTests, SettlingTests
from delaystore.testing._kit._state_machines import OperableMachineTests, StateMachineTests
from delaystore.testing._kit.audit import AuditOfKeysTests, AuditTests
from delaystore.testing._kit.history import HistoryOfKeysTests, HistoryTests
from delaystore.testing._kit.limits import LimitTests
from delaystore.testing._kit.pauses import PauseTests
from delaystore.testing._kit.reports import IngressReportTests, ReportTests
from delaystore.testing._kit.schedules import OccurrenceTests, ScheduleRowTests
from delaystore.testing._kit.search import SearchTests

_HEADERS: dict[str, Any] = {
    "none": None,
    "yes": True,
    "one": 1,
    "huge": -(10**30),
    "float": 0.1,
    "negative zero": -0.0,
    "infinity": float("inf"),
    "decimal": Decimal("1.10"),
    "text": "nul \0, quote ' and \", backslash \\, emoji 🕰, newline \r\n",
    "bytes": bytes(range(256)),
    "instant": datetime(2027, 3, 28, 1, 30, 0, 123456, tzinfo=UTC),
    "list": [1, [True, [None, b"\0"]], {"deep": [{"er": 1.5}]}],
    "map": {"$bytes": "not bytes", "": {}, "empty": []},
}
_PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain; charset=utf-8",
    "correlation_id": "ü" * 100,
    "priority": 9,
    "timestamp": datetime(2027, 1, 1, 12, 0, 0, 654321, tzinfo=UTC),
    "delivery_mode": 1,
}
_DESTINATIONS = (
    "billing'; DROP TABLE delayed; --",
    'a "quoted" `name` [x]',
    "100%_\\",
    " spaces ",
    "ünïcödé 🕰",
    "d" * 255,
    "/queues/" + "%2F" * 255,
    ":name %(name)s ? $1",
)
_ALIKE = ("a", "A", "a ", " a", "ä", "a\N{COMBINING DIAERESIS}", "ß", "ss", "\t", "%", "_", "🕰", "'", "i" * 255)


class RoundTripTests(StoreTests):
    """Bodies, headers, properties, ids and destinations come back exactly, types included."""

    def test_headers_and_properties_come_back_with_their_types(self, store: DelayedMessageStore) -> None:
        message = a_message("a", headers=_HEADERS, properties=_PROPERTIES)
        store.store(message)
        assert_only(all_taken(store, NOON), message)

    def test_any_message_comes_back_as_it_went_in(self, store: DelayedMessageStore) -> None:
        @settings(max_examples=100, deadline=None)
        @given(messages())
        def comes_back(message: DelayedMessage) -> None:
            store.store(message)
            assert_only(all_taken(store, message.next_attempt), message)

        comes_back()

    def test_any_batch_comes_back_as_it_went_in(self, store: DelayedMessageStore) -> None:
        @settings(max_examples=30, deadline=None)
        @given(messages(), messages())
        def comes_back(one: DelayedMessage, another: DelayedMessage) -> None:
            batch = {message.message_id: message for message in (one, another)}
            store.store_many(batch.values())
            found = all_taken(store, max(one.next_attempt, another.next_attempt))
            assert len(found) == len(batch)
            for message in found:
                assert_same(message, batch[message.message_id])

        comes_back()

    @pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536, 1024 * 1024])
    def test_bodies_of_any_size_come_back(self, store: DelayedMessageStore, size: int) -> None:
        body = random.Random(size).randbytes(size)  # noqa: S311 - not for secrets
        store.store(a_message("one", body=body))
        store.store_many([a_message("many", body=body)])
        assert [message.body for message in all_taken(store, NOON)] == [body, body]

    def test_message_ids_that_look_alike_are_told_apart(self, store: DelayedMessageStore) -> None:
        half = len(_ALIKE) // 2
        for message_id in _ALIKE[:half]:
            store.store(a_message(message_id, body=message_id.encode()))
        assert store.store_many(a_message(each, body=each.encode()) for each in _ALIKE[half:]) == len(_ALIKE) - half
        with store.transaction() as transaction:
            assert transaction.remove(a_message("i")) is False
        found = {message.message_id: message.body for message in all_taken(store, NOON)}
        assert found == {message_id: message_id.encode() for message_id in _ALIKE}

    @pytest.mark.parametrize("destination", _DESTINATIONS)
    def test_destinations_are_text_and_nothing_else(self, store: DelayedMessageStore, destination: str) -> None:
        store.store(a_message("a", destination=destination))
        store.store_many([a_message("b", destination=destination)])
        assert {message.destination for message in all_taken(store, NOON)} == {destination}

    def test_due_times_of_any_zone_come_back_as_the_same_instant(self, store: DelayedMessageStore) -> None:
        due_time = datetime.fromisoformat("2027-10-31T02:30:00.000001+02:00")
        store.store(a_message("a", due_time))
        (found,) = all_taken(store, due_time)
        assert found.due_time == due_time
        assert found.due_time.utcoffset() == timedelta(0)

    def test_what_was_stored_does_not_change_with_the_callers_dict(self, store: DelayedMessageStore) -> None:
        headers = {"list": [1]}
        store.store(a_message("a", headers=headers))
        headers["list"].append(2)
        (found,) = all_taken(store, NOON)
        assert exactly(found.headers) == exactly({"list": [1]})


_FAR = (
    datetime(9999, 12, 29, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 7, 20, 20, 17, 40, 123456, tzinfo=UTC),
)


class DueTests(StoreTests):
    """Due means <=, to the microsecond; the earliest next attempt comes first."""

    def test_an_empty_store_has_nothing_due_and_nothing_next(self, store: DelayedMessageStore) -> None:
        with store.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(NOON) is None
            assert list(transaction.fetch_due(NOON, 10)) == []
        assert store.next() is None

    def test_the_status_knows_the_first_that_waits_and_that_it_can_be_written(self, store: DelayedMessageStore) -> None:
        status = store.status()
        assert (status.first_due, status.read_only) == (None, None)
        store.store(a_message("a", NOON + SECOND))
        store.store(a_message("b", NOON))
        assert store.status().first_due == NOON

    def test_a_message_is_due_at_its_due_time_and_not_a_microsecond_sooner(self, store: DelayedMessageStore) -> None:
        due_time = NOON + timedelta(microseconds=123456)
        store.store(a_message("a", due_time))
        with store.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(due_time - TICK) is None
            assert list(transaction.fetch_due(due_time - TICK, 10)) == []
        with store.transaction() as transaction:
            assert_same(transaction.fetch_next_due_timeout(due_time), a_message("a", due_time))

    def test_a_batch_is_due_at_its_due_time(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a", NOON))
        store.store(a_message("b", NOON + TICK))
        assert ids(all_taken(store, NOON)) == ["a"]
        assert ids(all_taken(store, NOON + TICK)) == ["b"]

    def test_the_instant_asked_for_may_be_in_any_time_zone(self, store: DelayedMessageStore) -> None:
        store.store(a_message("a", NOON.astimezone()))
        assert ids(all_taken(store, NOON.astimezone())) == ["a"]

    def test_the_longest_waiting_comes_first(self, store: DelayedMessageStore) -> None:
        for name, seconds in (("c", 3), ("a", 1), ("d", 4), ("b", 2), ("e", 5)):
            store.store(a_message(name, NOON + seconds * SECOND))
        assert ids(all_taken(store, NOON + 4 * SECOND)) == ["a", "b", "c", "d"]

    def test_a_message_stored_late_still_comes_first(self, store: DelayedMessageStore) -> None:
        for name, seconds in (("c", 3), ("b", 2)):
            store.store(a_message(name, NOON + seconds * SECOND))
        with store.transaction() as transaction:
            first = claimed(transaction, NOON + 5 * SECOND)
            assert transaction.remove(first)
        store.store(a_message("a", NOON + SECOND))
        assert ids(all_taken(store, NOON + 5 * SECOND)) == ["a", "c"]

    def test_messages_due_at_the_same_instant_are_all_found(self, store: DelayedMessageStore) -> None:
        for number in range(20):
            store.store(a_message(str(number)))
        assert sorted(ids(all_taken(store, NOON)), key=int) == [str(number) for number in range(20)]

    @pytest.mark.parametrize("due_time", _FAR, ids=str)
    def test_due_times_far_away_are_kept(self, store: DelayedMessageStore, due_time: datetime) -> None:
        store.store(a_message("a", due_time))
        eventually_next(store, due_time)
        with store.transaction() as transaction:
            assert transaction.fetch_next_due_timeout(due_time - TICK) is None
        with store.transaction() as transaction:
            assert_same(transaction.fetch_next_due_timeout(due_time), a_message("a", due_time))

    def test_a_message_that_is_due_when_it_is_stored_waits_to_be_fetched(self, store: DelayedMessageStore) -> None:
        store.store(a_message("late", store.now() - timedelta(days=1)))
        assert ids(all_taken(store, store.now())) == ["late"]

    def test_next_is_the_earliest_due_time(self, store: DelayedMessageStore) -> None:
        store.store(a_message("b", NOON + SECOND))
        eventually_next(store, NOON + SECOND)
        store.store(a_message("a", NOON + TICK))
        eventually_next(store, NOON + TICK)
        store.store(a_message("c", NOON + 2 * SECOND))
        eventually_next(store, NOON + TICK)
        assert ids(all_taken(store, NOON + TICK)) == ["a"]
        eventually_next(store, NOON + SECOND)

    def test_next_is_none_again_when_everything_is_gone(self, store: DelayedMessageStore) -> None:
        store.store(a_message())
        assert all_taken(store, NOON)
        eventually_next(store, None)

    def test_the_clock_is_aware_and_runs_forward(self, store: DelayedMessageStore) -> None:
        first, second = store.now(), store.now()
        assert first.utcoffset() == timedelta(0)
        assert first <= second

    @needs("claims_outside_transactions")
    def test_what_was_fetched_is_not_fetched_again(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        store.store(a_message("a"))
        assert store.fetch_next_due_timeout(NOON) is not None
        assert store.fetch_next_due_timeout(NOON) is None
        assert other.fetch_next_due_timeout(NOON) is None
        assert list(other.fetch_due(NOON, 10)) == []


@needs("operations")
class CountTests(StoreTests):
    """By next attempt, by destination; failing messages, and parked ones."""

    def test_next_attempts_are_counted_by_bucket_from_since_to_until(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        times = (NOON - TICK, NOON, NOON + HOUR - TICK, NOON + HOUR, NOON + 3 * HOUR - TICK, NOON + 3 * HOUR)
        operable.store_many([a_message(str(number), due_time) for number, due_time in enumerate(times)])
        assert dict(operable.count_between(NOON, NOON + 3 * HOUR, HOUR)) == {
            NOON: 2,
            NOON + HOUR: 1,
            NOON + 2 * HOUR: 1,
        }
        assert dict(operable.count_between(NOON - HOUR, NOON, HOUR)) == {NOON - HOUR: 1}
        assert dict(operable.count_between(NOON + TICK, NOON + HOUR, timedelta(days=1))) == {
            datetime(2031, 1, 1, tzinfo=UTC): 1
        }
        assert dict(operable.count_between(FAR, FAR + HOUR, HOUR)) == {}

    def test_a_message_counts_where_it_is_shown_again(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a", failure_count=1, next_attempt=NOON + HOUR))
        assert dict(operable.count_between(NOON, NOON + 2 * HOUR, HOUR)) == {NOON + HOUR: 1}

    @pytest.mark.parametrize("bucket", [timedelta(0), timedelta(milliseconds=1500), -HOUR], ids=str)
    def test_a_bucket_that_is_no_whole_number_of_seconds_is_refused(
        self, operable: OperableDelayedMessageStore, bucket: timedelta
    ) -> None:
        with pytest.raises(DelaystoreError):
            operable.count_between(NOON, FAR, bucket)

    def test_destinations_are_counted_the_most_first(self, operable: OperableDelayedMessageStore) -> None:
        assert dict(operable.count_by_destination()) == {}
        for name, count in (("billing", 3), ("Billing", 1), ("shipping", 5), ("b ", 2)):
            operable.store_many([a_message(f"{name}{number}", destination=name) for number in range(count)])
        assert list(operable.count_by_destination().items()) == [
            ("shipping", 5),
            ("billing", 3),
            ("b ", 2),
            ("Billing", 1),
        ]
        assert dict(operable.count_by_destination(2)) == {"shipping": 5, "billing": 3}

    def test_what_fails_is_counted_up_to_a_number(self, operable: OperableDelayedMessageStore) -> None:
        assert operable.count_failing(10) == 0
        operable.store_many(some_messages(3))
        operable.store_many([a_message(f"f{n}", failure_count=n, next_attempt=NOON + n * SECOND) for n in range(1, 5)])
        assert (operable.count_failing(10), operable.count_failing(4), operable.count_failing(3)) == (4, 4, 3)

    def test_what_is_parked_is_counted_up_to_a_number(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many(some_messages(4))
        assert operable.count_parked(10) == 0
        operable.pause("billing", by=ME)
        assert operable.park(NOON + 2 * SECOND) == 3
        assert (operable.count_parked(10), operable.count_parked(3), operable.count_parked(2)) == (3, 3, 2)
        assert operable.count_by_destination() == {"billing": 4}


@needs("latest_deliveries")
class LatestDeliveryTests(StoreTests):
    """Messages with a latest delivery: it is kept, and moves with the due time."""

    def test_it_comes_back_and_others_have_none(self, store: DelayedMessageStore) -> None:
        assert store.keeps_not_after
        limits = {"a": None, "b": NOON, "c": None, "d": NOON + TICK, "e": LATEST_DUE_TIME}
        store.store_many([a_message(name, not_after=limit) for name, limit in limits.items()])
        store.store(a_message("f", not_after=FAR))
        assert {each.message_id: each.not_after for each in all_taken(store, NOON)} == {**limits, "f": FAR}

    @needs("management")
    def test_a_new_due_time_moves_it(self, managed: ManagedDelayedMessageStore) -> None:
        managed.store_many([a_message("a", not_after=NOON + 90 * SECOND + TICK), a_message("b")])
        for due_time in (NOON + HOUR, NOON - timedelta(days=200), datetime(1969, 12, 31, 23, tzinfo=UTC), FAR):
            assert [managed.reschedule(name, due_time) for name in "ab"] == [ManagementOutcome.DONE] * 2
            moved, other = managed.get("a"), managed.get("b")
            assert moved is not None
            assert (moved.due_time, moved.not_after) == (due_time, due_time + 90 * SECOND + TICK)
            assert other is not None
            assert other.not_after is None
        managed.reschedule("a", LATEST_DUE_TIME - TICK)
        assert [each.not_after for each in managed.list().messages] == [None, LATEST_DUE_TIME]

    @needs("keys", "management")
    def test_a_message_in_the_place_of_another_has_its_own(self, store: DelayedMessageStore) -> None:
        assert isinstance(store, KeyedDelayedMessageStore)
        assert isinstance(store, ManagedDelayedMessageStore)
        replace, kept = KeyRule(OnKey.REPLACE), KeyRule(OnKey.KEEP)
        store.store(a_message("a", key="k", not_after=FAR))
        store.store_keyed(a_message("b", key="k", not_after=NOON + SECOND), kept)
        assert [each.not_after for each in store.list().messages] == [FAR]
        for limit in (NOON + SECOND, None, FAR):
            store.store_keyed(a_message("a", key="k", not_after=limit), replace)
            assert [each.not_after for each in store.list().messages] == [limit]

    @needs("keys", "management")
    def test_a_shortened_delay_keeps_its_distance(self, store: DelayedMessageStore) -> None:
        assert isinstance(store, KeyedDelayedMessageStore)
        assert isinstance(store, ManagedDelayedMessageStore)
        rule = KeyRule(OnKey.DEBOUNCE, timedelta(minutes=1))
        for name in "ab":
            store.store_keyed(a_message(name, key="k", not_after=NOON + HOUR), rule)
            found = store.list().messages
            assert ids(found) == [name]
            assert found[0].due_time < NOON
            assert found[0].not_after == found[0].due_time + HOUR

    @needs("operations")
    def test_an_operation_moves_it_too(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many([a_message("a", not_after=FAR), a_message("b")])
        operation = Operation(
            operation_id="o", kind=OperationKind.RESCHEDULE, wanted=EVERYTHING, by=ME, began=NOON, due_time=NOON + HOUR
        )
        operable.begin_operation(operation)
        repeated(lambda: int(getattr(operable.advance_operation("o"), "state", None) is OperationState.RUNNING))
        assert {each.message_id: each.not_after for each in search_all(operable)} == {"a": FAR + HOUR, "b": None}


class StoreConformance(
    LatestDeliveryTests,
    DueTests,
    SettlingTests,
    TakenIdTests,
    RoundTripTests,
    BatchTests,
    TransactionTests,
    ConcurrencyTests,
    CrashTests,
    InfrastructureTests,
    SessionTests,
    ManagementTests,
    KeyTests,
    SearchTests,
    CountTests,
    OperationTests,
    ShiftTests,
    PauseTests,
    LimitTests,
    FailureTests,
    ReportTests,
    IngressReportTests,
    AuditTests,
    AuditOfKeysTests,
    HistoryTests,
    HistoryOfKeysTests,
    ScheduleRowTests,
    OccurrenceTests,
    StateMachineTests,
    OperableMachineTests,
):
    """The contracts of `delaystore.stores.abc` and `.operable` as a pytest class, for authors of stores to subclass.

        class TestMyStore(StoreConformance):
            capabilities = StoreCapabilities(transactions=True, batches=True)

            @pytest.fixture
            def store_factory(self, tmp_path):
                return lambda: MyStore(tmp_path / "messages")

    `capabilities` decides which tests there are; some of its flags ask for one more fixture, see `StoreTests`.
    """
