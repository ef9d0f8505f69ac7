"""Recurring schedules on every store, by a clock that the tests set: changes, times, catch-up and unusual rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from secrets import token_hex
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import column, select, table, text

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import Dispatcher
from delaystore.errors import (
    ConfigurationError,
    InvalidScheduleError,
    StorePermissionError,
    StoreSetupError,
    UnknownScheduleError,
)
from delaystore.message import DelayedMessage
from delaystore.schedules import PutResult, Schedule, ScheduleState
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore
from delaystore.stores.history import HistoryFilter
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import Ending, Way
from delaystore.testing import RecordingTransport, SettableClock, TestDelivery
from tests.dispatching import PATIENCE, FiveMethodStore, running, wait_until
from tests.integration.sql_stores import connected, execute
from tests.long import long
from tests.servers import PostgreSQLDatabases

NOON: Final = datetime(2027, 1, 1, 12, tzinfo=UTC)  # a Friday, at which the tests' clock begins
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
TO_BILLING: Final[Any] = {"destination": "billing", "body": b"pay"}


@pytest.fixture(params=["memory", "sqlite", "postgresql", long("mariadb")])
def database_url(request: pytest.FixtureRequest) -> str:
    """A database of each kind with the tables in it; empty: the store in memory."""
    return "" if request.param == "memory" else str(request.getfixturevalue(f"prepared_{request.param}_url"))


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def store(database_url: str, clock: SettableClock) -> Iterator[OperableDelayedMessageStore]:
    url = database_url
    store = SqlDelayedMessageStore(url, clock=clock) if url else InMemoryDelayedMessageStore(clock)
    yield store
    store.close()


@pytest.fixture
def delivery(store: OperableDelayedMessageStore, clock: SettableClock) -> Iterator[TestDelivery]:
    with TestDelivery("sales", store, clock=clock) as delivery:
        yield delivery


@pytest.fixture
def sql_delivery(prepared_sqlite_url: str, clock: SettableClock) -> Iterator[TestDelivery]:
    """Of a store in SQLite, for tests of the store's rows."""
    with TestDelivery("sales", SqlDelayedMessageStore(prepared_sqlite_url, clock=clock), clock=clock) as delivery:
        yield delivery


@pytest.fixture
def quick() -> Iterator[TestDelivery]:
    """Of a store in memory, for rules that no store has a part in."""
    with TestDelivery("sales") as delivery:
        yield delivery


def nominal(messages: Sequence[DelayedMessage]) -> list[datetime]:
    """The nominal times of occurrences, from their headers."""
    return [datetime.fromisoformat(each.headers["delaystore.nominal-time"]) for each in messages]


def bodies(messages: Sequence[DelayedMessage]) -> list[bytes]:
    return [each.body for each in messages]


def state_of(delivery: DelayedDelivery, name: str) -> ScheduleState:
    found = delivery.schedules.get(name)
    assert found is not None
    return found


def counts(delivery: DelayedDelivery, name: str) -> tuple[int, int, int, int]:
    """Made, missed, overlapped and skipped."""
    state = state_of(delivery, name)
    return state.made, state.missed, state.overlapped, state.skipped


def times(first: datetime, count: int, step: timedelta = MINUTE) -> list[datetime]:
    return [first + number * step for number in range(count)]


# Put.


def test_a_schedule_is_created_changed_and_the_same(delivery: TestDelivery) -> None:
    schedules = delivery.schedules
    assert schedules.put("a", cron="*/5 * * * *", **TO_BILLING) is PutResult.CREATED
    assert schedules.put("a", cron="*/5 * * * *", **TO_BILLING) is PutResult.UNCHANGED
    assert state_of(delivery, "a").version == 1
    delivery.dispatch_for(minutes=11)
    assert nominal(delivery.delivered()) == times(NOON + 5 * MINUTE, 2, 5 * MINUTE)
    assert schedules.put("a", cron="*/2 * * * *", destination="sales", body=b"new") is PutResult.CHANGED
    delivery.dispatch_for(minutes=3)
    assert nominal(delivery.delivered("sales")) == times(NOON + 12 * MINUTE, 2, 2 * MINUTE)
    state = state_of(delivery, "a")
    assert (state.version, state.schedule.body, state.next_time) == (2, b"new", NOON + 16 * MINUTE)
    assert state.last_id == "schedule/a/2027-01-01T12:14:00Z"


def test_an_occurrence_that_was_made_is_of_the_new_definition(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=MINUTE, **TO_BILLING)
    assert nominal(delivery.waiting()) == times(NOON + MINUTE, 2)
    delivery.schedules.put("a", every=MINUTE, destination="billing", body=b"new")
    assert bodies(delivery.waiting()) == [b"new"] * 2
    delivery.schedules.put("a", every=HOUR, destination="billing", body=b"new")
    assert delivery.waiting() == []
    assert counts(delivery, "a") == (0, 0, 0, 0)


def test_a_due_occurrence_is_made_again_by_an_edit(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=MINUTE, **TO_BILLING)
    delivery.clock.advance(90)
    delivery.schedules.put("a", every=HOUR, destination="billing", body=b"new")
    assert [(each.body, *nominal([each])) for each in delivery.dispatch_due()] == [(b"new", NOON + MINUTE)]
    assert state_of(delivery, "a").last_time == NOON + MINUTE


def test_an_interval_keeps_its_beginning(delivery: TestDelivery) -> None:
    delivery.clock.advance(seconds=7.25)
    begun = NOON + 7 * SECOND
    delivery.schedules.put("a", every=10 * MINUTE, **TO_BILLING)
    delivery.dispatch_for(minutes=25)
    delivery.schedules.put("a", every=10 * MINUTE, destination="billing", body=b"new")
    assert delivery.schedules.upcoming("a", 2) == times(begun + 30 * MINUTE, 2, 10 * MINUTE)
    delivery.schedules.put("a", every=15 * MINUTE, destination="billing", body=b"new")
    assert delivery.schedules.upcoming("a", 2) == times(begun + 30 * MINUTE, 2, 15 * MINUTE)
    delivery.schedules.put("a", every=15 * MINUTE, starts=NOON + DAY, destination="billing", body=b"new")
    assert delivery.schedules.upcoming("a", 2) == times(NOON + DAY, 2, 15 * MINUTE)


def test_a_preview_is_of_the_beginning_that_a_put_would_keep(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, **TO_BILLING)
    delivery.clock.advance(minutes=20)
    changed = Schedule.of("a", every=2 * HOUR, **TO_BILLING)
    assert delivery.schedules.preview(changed, 1) == [NOON + 2 * HOUR]
    assert delivery.schedules.put_schedule(changed, dry_run=True) is PutResult.CHANGED
    assert delivery.schedules.upcoming("a", 1) == [NOON + HOUR]
    assert delivery.schedules.put_schedule(changed) is PutResult.CHANGED
    assert delivery.schedules.upcoming("a", 1) == [NOON + 2 * HOUR]


def test_occurrences_are_made_while_the_transport_is_unavailable(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=MINUTE, **TO_BILLING)
    delivery.transport.unavailable_reason = "down"
    assert delivery.dispatch_for(minutes=3.1) == []
    delivery.transport.unavailable_reason = None
    assert nominal(delivery.dispatch_due()) == times(NOON + MINUTE, 3)


def test_a_time_zone_is_a_name_or_a_zone_info(quick: TestDelivery) -> None:
    quick.schedules.put("a", cron="0 9 * * *", zone=ZoneInfo("Europe/Berlin"), **TO_BILLING)
    assert quick.schedules.put("a", cron="0 9 * * *", zone="Europe/Berlin", **TO_BILLING) is PutResult.UNCHANGED


def test_headers_and_properties_of_an_occurrence(delivery: TestDelivery) -> None:
    delivery.schedules.put(
        "täglich/a",
        every=MINUTE,
        destination="billing",
        json={"sum": "ü"},
        headers={"id": "{message_id}", "not": "x{message_id}", "bytes": b"\0", "one": 1},
        properties={"correlation_id": "{message_id}"},
    )
    first, second = delivery.dispatch_for(minutes=2)
    assert first.message_id == "schedule/täglich/a/2027-01-01T12:01:00Z"
    assert first.due_time == NOON + MINUTE
    assert first.headers == {
        "id": first.message_id,
        "not": "x{message_id}",
        "bytes": b"\0",
        "one": 1,
        "delaystore.schedule": "täglich/a",
        "delaystore.nominal-time": "2027-01-01T12:01:00+00:00",
        "delaystore.next-time": "2027-01-01T12:02:00+00:00",
    }
    assert first.properties == {"content_type": "application/json", "correlation_id": first.message_id}
    assert (first.body, second.headers["id"]) == ('{"sum":"ü"}'.encode(), second.message_id)


def test_a_value_of_another_type_is_a_change(delivery: TestDelivery) -> None:
    values: list[Any] = [1, True, 1.0, "1", b"1", [1], [True]]
    delivery.schedules.put("a", every=DAY, headers={"x": None}, **TO_BILLING)
    for value in values:
        assert delivery.schedules.put("a", every=DAY, headers={"x": value}, **TO_BILLING) is PutResult.CHANGED
        assert delivery.schedules.put("a", every=DAY, headers={"x": value}, **TO_BILLING) is PutResult.UNCHANGED


# Many at once.


def below(*names: str, **changes: Any) -> list[Schedule]:
    return [Schedule.of(name, **{"cron": "0 9 * * *", **TO_BILLING, **changes}) for name in names]


def test_put_all_creates_changes_and_deletes_below_its_prefix(delivery: TestDelivery) -> None:
    for other in ("t", "t0/a", "u/a"):
        delivery.schedules.put(other, every=MINUTE, **TO_BILLING)
    others = len(delivery.waiting())
    first = delivery.schedules.put_all(below("t/a", "t/b", "t/c", every=MINUTE, cron=None), prefix="t/")
    assert (first.created, first.changed, first.deleted, first.unchanged) == (["t/a", "t/b", "t/c"], [], [], 0)
    wanted = [*below("t/a", "t/b", every=MINUTE, cron=None), *below("t/d")]
    wanted[1] = below("t/b", every=MINUTE, cron=None, body=b"new")[0]
    found = [delivery.schedules.put_all(wanted, prefix="t/", dry_run=dry_run) for dry_run in (True, False)]
    for each in found:
        assert each.as_dict() == {"created": ["t/d"], "changed": ["t/b"], "deleted": ["t/c"], "unchanged": 1}
    assert [each.name for each in delivery.schedules.list()] == ["t", "t/a", "t/b", "t/d", "t0/a", "u/a"]
    made = [each for each in delivery.waiting() if each.headers["delaystore.schedule"].startswith("t/")]
    assert sorted((each.headers["delaystore.schedule"], each.body) for each in made) == [
        *[("t/a", b"pay")] * 2,
        *[("t/b", b"new")] * 2,
    ]
    assert len(delivery.waiting()) == others + len(made)
    again = delivery.schedules.put_all(wanted, prefix="t/")
    assert again.as_dict() == {"created": [], "changed": [], "deleted": [], "unchanged": 3}


def test_a_dry_run_changes_nothing(delivery: TestDelivery) -> None:
    delivery.schedules.put("t/a", every=MINUTE, **TO_BILLING)
    before = [each.as_dict() for each in delivery.schedules.list()], delivery.waiting()
    changes = delivery.schedules.put_all(below("t/b"), prefix="t/", dry_run=True)
    assert changes.as_dict() == {"created": ["t/b"], "changed": [], "deleted": ["t/a"], "unchanged": 0}
    assert ([each.as_dict() for each in delivery.schedules.list()], delivery.waiting()) == before


@pytest.mark.parametrize(
    ("last", "prefix", "error"),
    [
        ({"name": "u/z"}, "t/", "the schedule 'u/z' does not begin with the prefix 't/'; nothing was changed"),
        ({"name": "t/b"}, "t/", "the schedule 't/b' occurs twice; nothing was changed"),
        ({"destination": ""}, "t/", "the schedule 't/z' is invalid: .*destination"),
        ({"body": b"x" * 200}, "t/", "the schedule 't/z' is invalid: .*200 bytes"),
        ({}, "", "put_all needs a prefix"),
    ],
)
def test_a_mistake_in_the_last_one_changes_nothing(
    store: OperableDelayedMessageStore, clock: SettableClock, last: dict[str, Any], prefix: str, error: str
) -> None:
    name = last.get("name", "t/z")
    last = {member: value for member, value in last.items() if member != "name"}
    with TestDelivery("sales", store, clock=clock, settings=DelayedDeliverySettings(max_body_bytes=100)) as delivery:
        delivery.schedules.put("t/a", every=MINUTE, **TO_BILLING)
        before = [each.as_dict() for each in delivery.schedules.list()], delivery.waiting()
        with pytest.raises(InvalidScheduleError, match=error) as raised:
            delivery.schedules.put_all([*below("t/b", "t/c"), *below(name, **last)], prefix=prefix)
        assert "\n" not in str(raised.value)
        assert ([each.as_dict() for each in delivery.schedules.list()], delivery.waiting()) == before


def test_ten_thousand_schedules_are_put_at_once(quick: TestDelivery) -> None:
    many = below(*(f"t/{number:05}" for number in range(10_000)))
    assert len(quick.schedules.put_all(many, prefix="t/").created) == 10_000
    assert quick.schedules.put_all(many, prefix="t/").unchanged == 10_000
    assert len(quick.schedules.put_all(many[:1], prefix="t/").deleted) == 9_999


# Pause, skip, trigger, backfill, delete.


def test_pause_and_resume(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=MINUTE, **TO_BILLING)
    delivery.clock.advance(minutes=1)  # an occurrence is due, and one is made ahead
    assert delivery.schedules.pause("a") is True
    assert delivery.schedules.pause("a") is False
    assert nominal(delivery.dispatch_for(minutes=9)) == [NOON + MINUTE]
    state = state_of(delivery, "a")
    assert (state.paused, state.next_time, state.made, state.missed) == (True, None, 1, 0)
    assert delivery.schedules.put("a", every=MINUTE, destination="billing", body=b"new") is PutResult.CHANGED
    assert delivery.dispatch_for(minutes=9) == []
    assert delivery.schedules.resume("a") is True
    assert delivery.schedules.resume("a") is False
    assert nominal(delivery.dispatch_for(minutes=2)) == times(NOON + 20 * MINUTE, 2)
    assert counts(delivery, "a")[1] == 0


def test_pause_and_resume_at_once_make_each_occurrence_once(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=MINUTE, max_runs=5, **TO_BILLING)
    for _ in range(3):
        delivery.schedules.pause("a")
        assert delivery.waiting() == []
        delivery.schedules.resume("a")
        delivery.schedules.put("a", every=MINUTE, max_runs=5, destination="billing", body=b"new")
    assert nominal(delivery.dispatch_for(minutes=10)) == times(NOON + MINUTE, 5)
    state = state_of(delivery, "a")
    assert (state.made, state.remaining, state.next_time) == (5, 0, None)


def test_occurrences_are_skipped_made_or_not(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=MINUTE, **TO_BILLING)
    for minutes in (2, 5):  # 12:02 is made already
        assert delivery.schedules.skip("a", NOON + minutes * MINUTE) is True
        assert delivery.schedules.skip("a", NOON + minutes * MINUTE) is True
    assert delivery.schedules.upcoming("a", 4) == [NOON + minutes * MINUTE for minutes in (1, 3, 4, 6)]
    delivery.schedules.put("a", every=MINUTE, destination="billing", body=b"new")
    assert nominal(delivery.dispatch_for(minutes=6)) == [NOON + minutes * MINUTE for minutes in (1, 3, 4, 6)]
    assert counts(delivery, "a")[1:] == (0, 0, 2)
    for wrong, why in ((NOON, "no future occurrence"), (NOON + 7.5 * MINUTE, "the next one is at 2027-01-01 12:08")):
        with pytest.raises(InvalidScheduleError, match=why):
            delivery.schedules.skip("a", wrong)


def test_a_skipped_occurrence_does_not_use_up_a_run(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=MINUTE, max_runs=2, **TO_BILLING)
    assert len(delivery.waiting()) == 2  # all are made
    delivery.schedules.skip("a", NOON + 2 * MINUTE)
    assert nominal(delivery.dispatch_for(minutes=9)) == [NOON + MINUTE, NOON + 3 * MINUTE]
    delivery.schedules.put("b", every=HOUR, max_runs=2, **TO_BILLING)
    delivery.schedules.skip("b", delivery.schedules.upcoming("b", 1)[0])
    assert len(delivery.dispatch_for(hours=9)) == 2


def test_a_claimed_occurrence_is_not_skipped(delivery: TestDelivery, store: OperableDelayedMessageStore) -> None:
    delivery.schedules.put("a", every=MINUTE, **TO_BILLING)
    with store.transaction() as transaction:
        (claimed,) = transaction.fetch_due(NOON + MINUTE, 10)
        assert delivery.schedules.skip("a", NOON + MINUTE) is False
        delivery.schedules.put("a", every=MINUTE, destination="billing", body=b"new")
        delivery.schedules.pause("a")
        delivery.schedules.resume("a")
    assert claimed.body == b"pay"
    assert [(each.body, *nominal([each])) for each in delivery.dispatch_for(minutes=2)] == [
        (b"pay", NOON + MINUTE),
        (b"new", NOON + 2 * MINUTE),
    ]
    assert state_of(delivery, "a").made == len(delivery.delivered()) + len(delivery.waiting())


def test_a_schedule_is_created_again_while_an_occurrence_is_claimed(
    delivery: TestDelivery, store: OperableDelayedMessageStore
) -> None:
    delivery.schedules.put("a", every=MINUTE, starts=NOON, **TO_BILLING)
    with store.transaction() as transaction:
        (claimed,) = transaction.fetch_due(NOON + MINUTE, 10)
        assert delivery.schedules.delete("a") is True
        delivery.schedules.put("a", every=MINUTE, starts=NOON, destination="billing", body=b"new")
    assert [(each.body, *nominal([each])) for each in delivery.dispatch_for(minutes=2)] == [
        (b"pay", nominal([claimed])[0]),
        (b"new", NOON + 2 * MINUTE),
    ]


def test_an_occurrence_now(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=DAY, headers={"id": "{message_id}"}, **TO_BILLING)
    delivery.schedules.pause("a")
    ids = [delivery.schedules.trigger("a")]
    delivery.clock.advance(seconds=0.5)
    ids.append(delivery.schedules.trigger("a"))
    delivery.schedules.put("a", every=2 * DAY, **TO_BILLING)
    assert [each.message_id for each in delivery.dispatch_due()] == ids
    assert [each.headers.get("id") for each in delivery.delivered()] == ids
    assert counts(delivery, "a") == (0, 0, 0, 0)


def test_a_past_time_is_filled(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", cron="0 * * * *", max_late=MINUTE, **TO_BILLING)
    assert delivery.schedules.backfill("a", NOON - 3 * HOUR, NOON - HOUR) == 3
    assert delivery.schedules.backfill("a", NOON - 4 * HOUR, NOON - HOUR) == 1  # three still wait
    found = delivery.dispatch_due()
    assert sorted(nominal(found)) == times(NOON - 4 * HOUR, 4, HOUR)
    assert all(each.headers["delaystore.backfilled"] is True for each in found)
    assert delivery.schedules.backfill("a", NOON - HOUR, NOON - HOUR) == 1  # it was delivered
    assert counts(delivery, "a") == (0, 0, 0, 0)
    for since, until, why in (
        (NOON, NOON - HOUR, "until must not be before since"),
        (NOON, NOON + HOUR, "is in the future"),
        (NOON - 10_001 * HOUR, NOON, "more than 10,000 occurrences"),
    ):
        with pytest.raises(InvalidScheduleError, match=why):
            delivery.schedules.backfill("a", since, until)


def test_a_deleted_schedule_leaves_no_occurrence(delivery: TestDelivery) -> None:
    for name in ("a", "a/b", "ab"):
        delivery.schedules.put(name, every=MINUTE, **TO_BILLING)
    delivery.clock.advance(minutes=1)
    assert delivery.schedules.delete("a") is True
    assert delivery.schedules.delete("a") is False
    assert {each.headers["delaystore.schedule"] for each in delivery.dispatch_for(minutes=5)} == {"a/b", "ab"}
    assert delivery.schedules.get("a") is None
    for unknown in (
        lambda: delivery.schedules.pause("a"),
        lambda: delivery.schedules.resume("a"),
        lambda: delivery.schedules.skip("a", NOON),
        lambda: delivery.schedules.trigger("a"),
        lambda: delivery.schedules.backfill("a", NOON, NOON),
        lambda: delivery.schedules.upcoming("a"),
    ):
        with pytest.raises(UnknownScheduleError, match="there is no schedule 'a'; `delaystore schedules list`"):
            unknown()


def test_schedules_are_listed_by_page(delivery: TestDelivery) -> None:
    for name in ("b", "a/2", "a/1", "a/3", "ä"):
        delivery.schedules.put(name, every=DAY, **TO_BILLING)
    assert [each.name for each in delivery.schedules.list()] == ["a/1", "a/2", "a/3", "b", "ä"]
    assert [each.name for each in delivery.schedules.list("a/", after="a/1", limit=1)] == ["a/2"]
    document = delivery.schedules.list("ä")[0].as_dict()
    members = {name: document[name] for name in ("name", "destination", "body", "every", "starts")}
    assert Schedule.of_document(members) == state_of(delivery, "ä").schedule


# Bounds, jitter, catch-up, overlaps.


def test_bounds_of_a_schedule(delivery: TestDelivery) -> None:
    bounds: Any = {"starts": NOON + 3 * MINUTE, "ends": NOON + 5 * MINUTE}
    delivery.schedules.put("cron", cron="* * * * *", **bounds, **TO_BILLING)
    delivery.schedules.put("every", every=MINUTE, **bounds, destination="sales", body=b"")
    delivery.schedules.put("runs", every=MINUTE, max_runs=3, destination="runs", body=b"")
    assert delivery.schedules.upcoming("runs", 9) == times(NOON + MINUTE, 3)
    delivery.dispatch_for(minutes=10)
    assert nominal(delivery.delivered("billing")) == times(NOON + 3 * MINUTE, 3)
    assert nominal(delivery.delivered("sales")) == times(NOON + 3 * MINUTE, 3)
    assert nominal(delivery.delivered("runs")) == times(NOON + MINUTE, 3)
    assert "delaystore.next-time" not in delivery.delivered("runs")[-1].headers
    assert [each.next_time for each in delivery.schedules.list()] == [None, None, None]
    assert state_of(delivery, "runs").remaining == 0
    delivery.schedules.put("runs", every=MINUTE, max_runs=5, destination="runs", body=b"")
    delivery.dispatch_for(minutes=10)
    assert len(delivery.delivered("runs")) == 5


def test_a_jitter_is_the_same_for_an_occurrence(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=MINUTE, jitter="30s", **TO_BILLING)
    first = [(each.message_id, each.due_time) for each in delivery.waiting()]
    delivery.schedules.put("a", every=MINUTE, jitter="30s", destination="billing", body=b"new")
    assert [(each.message_id, each.due_time) for each in delivery.waiting()] == first
    found = delivery.dispatch_for(minutes=20)
    late = [each.due_time - time for each, time in zip(found, nominal(found), strict=True)]
    assert len(set(late)) > 15
    assert all(timedelta(0) <= each < 30 * SECOND for each in late)
    assert len({*nominal(found)}) == len(found) >= 19


@pytest.mark.parametrize(
    ("options", "made", "missed"),
    [
        ({}, [60], 57),
        ({"catch_up": "all"}, range(3, 61), 0),
        ({"catch_up": "none"}, [59, 60], 56),
        ({"catch_up": "none", "max_late": "5m"}, range(55, 61), 52),
        ({"catch_up": "all", "max_late": "2m"}, [58, 59, 60], 55),
        ({"catch_up": "last", "max_late": 1}, [60], 57),
    ],
)
def test_occurrences_that_were_missed(
    delivery: TestDelivery, options: dict[str, Any], made: Sequence[int], missed: int
) -> None:
    """12:01 and 12:02 were made when the schedule was put; then no dispatcher ran for an hour."""
    delivery.schedules.put("a", every=MINUTE, **options, **TO_BILLING)
    delivery.clock.advance(hours=1)
    found = [each for each in nominal(delivery.dispatch_due()) if each > NOON + 2 * MINUTE]
    assert found == [NOON + minutes * MINUTE for minutes in made]
    assert counts(delivery, "a")[:2] == (len(made) + 2 + 2, missed)  # two were made when it was put, and two ahead
    assert nominal(delivery.dispatch_for(minutes=1)) == [NOON + 61 * MINUTE]


def test_at_most_a_thousand_missed_occurrences_are_made(quick: TestDelivery) -> None:
    quick.schedules.put("a", every=SECOND, catch_up="all", **TO_BILLING)
    before = len(quick.waiting())
    quick.clock.advance(hours=1)
    found = nominal(quick.dispatch_due())[before:]
    assert found == times(NOON + HOUR - 999 * SECOND, 1_000, SECOND)
    assert counts(quick, "a")[1] == 3_600 - before - 1_000


@pytest.mark.parametrize(("catch_up", "made"), [("last", [2]), ("all", [1, 2])])
def test_an_edit_after_an_outage_loses_no_missed_occurrence(
    delivery: TestDelivery, catch_up: str, made: Sequence[int]
) -> None:
    delivery.schedules.put("a", every=HOUR, catch_up=catch_up, **TO_BILLING)
    delivery.clock.advance(hours=2.5)
    delivery.schedules.put("a", every=30 * MINUTE, catch_up=catch_up, destination="billing", body=b"new")
    found = delivery.dispatch_due()
    assert nominal(found) == [NOON + hours * HOUR for hours in made]
    assert {*bodies(found)} == {b"new"}
    assert counts(delivery, "a")[:2] == (len(made), 2 - len(made))
    assert nominal(delivery.dispatch_for(minutes=40)) == [NOON + 3 * HOUR]


def test_a_backfill_after_an_outage_makes_each_occurrence_once(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, **TO_BILLING)
    delivery.clock.advance(hours=3.5)
    assert delivery.schedules.backfill("a", NOON + HOUR, NOON + 3 * HOUR) == 2
    assert sorted(nominal(delivery.dispatch_due())) == [NOON + hours * HOUR for hours in (1, 2, 3)]
    assert counts(delivery, "a")[:2] == (1, 2)


def test_the_last_missed_occurrence_is_made_that_was_not_skipped(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, **TO_BILLING)
    delivery.schedules.skip("a", NOON + 3 * HOUR)
    delivery.clock.advance(hours=3.5)
    assert nominal(delivery.dispatch_due()) == [NOON + 2 * HOUR]
    assert counts(delivery, "a") == (1, 1, 0, 1)


def test_skips_are_dropped_with_the_rule_that_had_them(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", cron="0 * * * *", **TO_BILLING)
    delivery.schedules.skip("a", NOON + HOUR)
    delivery.schedules.put("a", cron="30 * * * *", **TO_BILLING)
    delivery.clock.advance(hours=2)
    assert nominal(delivery.dispatch_due()) == [NOON + 1.5 * HOUR]
    assert counts(delivery, "a") == (1, 1, 0, 1)


@pytest.mark.parametrize("change", ["put", "pause"])
def test_a_clock_that_steps_back_repeats_no_occurrence(delivery: TestDelivery, change: str) -> None:
    delivery.schedules.put("a", every=10 * MINUTE, **TO_BILLING)
    before = nominal(delivery.dispatch_for(minutes=35))
    delivery.clock.advance(minutes=-20)
    if change == "put":
        delivery.schedules.put("a", every=10 * MINUTE, destination="billing", body=b"new")
    else:
        delivery.schedules.pause("a")
        delivery.schedules.resume("a")
    after = nominal(delivery.dispatch_for(minutes=30))
    assert [*before, *after] == [NOON + minutes * MINUTE for minutes in (10, 20, 30, 40)]


def test_occurrences_keep_their_jitter_in_an_edit(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", cron="* * * * *", jitter="1h", max_late="5m", **TO_BILLING)
    delivery.dispatch_for(minutes=30.5)
    waiting = {each.message_id: (each.due_time, each.not_after) for each in delivery.waiting()}
    assert len(waiting) > 10
    delivery.schedules.put("a", cron="* * * * *", jitter="1h", max_late="5m", destination="billing", body=b"new")
    assert {each.message_id: (each.due_time, each.not_after) for each in delivery.waiting()} == waiting
    assert {*bodies(delivery.waiting())} == {b"new"}
    assert delivery.schedules.pause("a") is True
    assert delivery.waiting() == []


def test_an_occurrence_is_skipped_until_it_is_due(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, jitter="1h", **TO_BILLING)
    delivery.dispatch_for(minutes=59.5)
    (message,) = delivery.waiting()
    assert message.due_time > NOON + HOUR + MINUTE
    delivery.dispatch_for(minutes=2)
    assert delivery.schedules.skip("a", NOON + HOUR) is True
    assert delivery.waiting() == []
    assert counts(delivery, "a") == (0, 0, 0, 1)


def test_the_last_run_is_skipped_until_it_is_due(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, jitter="1h", max_runs=1, **TO_BILLING)
    delivery.dispatch_for(minutes=61)
    assert delivery.schedules.skip("a", NOON + HOUR) is True
    assert state_of(delivery, "a").next_time == NOON + 2 * HOUR
    assert nominal(delivery.dispatch_for(hours=9)) == [NOON + 2 * HOUR]


def test_a_skip_forgets_no_run_that_was_due_before(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, if_waiting="skip", **TO_BILLING)
    delivery.operations.pause("billing")
    delivery.dispatch_for(minutes=61)
    assert delivery.schedules.skip("a", NOON + 3 * HOUR) is True
    assert state_of(delivery, "a").last_time == NOON + HOUR
    delivery.dispatch_for(minutes=60)
    assert counts(delivery, "a") == (1, 0, 1, 1)


def test_an_edit_names_the_next_time_of_each_due_occurrence(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=MINUTE, **TO_BILLING)
    delivery.operations.pause("billing")
    delivery.dispatch_for(minutes=3.5)
    delivery.schedules.put("a", every=MINUTE, destination="billing", body=b"new")
    found = sorted(delivery.waiting(), key=lambda each: each.due_time)
    following = [datetime.fromisoformat(each.headers["delaystore.next-time"]) for each in found]
    assert following == [each + MINUTE for each in nominal(found)]


def test_a_missed_occurrence_is_late_from_its_due_time_on(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, jitter="1h", max_late="5m", **TO_BILLING)
    delivery.clock.advance(hours=1, minutes=7)
    delivery.dispatch_due()
    assert counts(delivery, "a")[:2] == (1, 0)


def test_an_edit_keeps_marks_and_latest_deliveries(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, max_late="5m", **TO_BILLING)
    delivery.dispatch_for(hours=3)
    delivery.operations.pause("billing")
    delivery.schedules.backfill("a", NOON + HOUR, NOON + 2 * HOUR)
    before = {each.message_id: each.not_after for each in delivery.waiting()}
    delivery.clock.advance(minutes=2)
    delivery.schedules.put("a", every=HOUR, max_late="5m", destination="billing", body=b"new")
    assert {each.message_id: each.not_after for each in delivery.waiting()} == before
    assert [each.headers["delaystore.backfilled"] for each in delivery.waiting()] == [True, True]


def test_a_put_may_name_the_version_that_it_changes(delivery: TestDelivery) -> None:
    schedule = Schedule.of("a", every=HOUR, **TO_BILLING)
    assert delivery.schedules.put_schedule(schedule, version=0) is PutResult.CREATED
    changed = Schedule.of("a", every=HOUR, destination="billing", body=b"new")
    for version in (0, 2):
        with pytest.raises(InvalidScheduleError, match="another user has changed or deleted it"):
            delivery.schedules.put_schedule(changed, version=version)
    assert delivery.schedules.put_schedule(changed, version=1) is PutResult.CHANGED


def test_two_triggers_at_one_time_make_two_occurrences(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, **TO_BILLING)
    assert delivery.schedules.trigger("a") != delivery.schedules.trigger("a")
    assert len(delivery.dispatch_due()) == 2


def test_times_before_the_calendar_are_mistakes_or_empty(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, **TO_BILLING)
    first = datetime.min.replace(tzinfo=UTC)
    with pytest.raises(InvalidScheduleError, match="no future occurrence"):
        delivery.schedules.skip("a", first)
    assert delivery.schedules.backfill("a", first, NOON - HOUR) == 0


def test_a_pause_after_an_outage_loses_no_missed_occurrence(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, **TO_BILLING)
    delivery.clock.advance(hours=2.5)
    assert delivery.schedules.pause("a") is True
    assert nominal(delivery.dispatch_due()) == [NOON + 2 * HOUR]
    assert counts(delivery, "a")[:2] == (1, 1)
    assert delivery.dispatch_for(hours=3) == []


def test_an_occurrence_expires_when_it_is_late(delivery: TestDelivery) -> None:
    delivery.schedules.put("a", every=HOUR, max_late="5m", **TO_BILLING)
    delivery.dispatch_for(minutes=59.5)
    (made,) = delivery.waiting()
    assert made.not_after == NOON + HOUR + 5 * MINUTE
    delivery.clock.advance(minutes=7)
    (expired,) = delivery.dispatch_due()
    assert expired.destination != "billing"  # it went to the error queue


def test_an_occurrence_is_left_out_while_an_earlier_one_waits(delivery: TestDelivery) -> None:
    delivery.schedules.put("skip", every=MINUTE, if_waiting="skip", **TO_BILLING)
    delivery.schedules.put("allow", every=MINUTE, destination="billing", body=b"allow")
    delivery.operations.pause("billing")
    delivery.dispatch_for(minutes=5)
    assert sorted(bodies(delivery.waiting())) == [b"allow"] * 6 + [b"pay"]
    assert counts(delivery, "skip") == (1, 0, 4, 0)
    delivery.operations.resume("billing")
    found = [each for each in delivery.dispatch_for(minutes=2) if each.body == b"pay"]
    assert nominal(found) == [NOON + minutes * MINUTE for minutes in (1, 6, 7)]
    assert counts(delivery, "skip")[2] == 4


# Daylight saving.


@pytest.mark.parametrize(
    ("rule", "begin", "local"),
    [
        ({"cron": "30 2 * * *"}, "2027-03-27T12:00Z", ["28 03:00", "29 02:30"]),
        ({"cron": "30 2 * * *"}, "2027-10-30T12:00Z", ["31 02:30", "01 02:30"]),
        ({"cron": "*/30 2 * * *"}, "2027-10-30T12:00Z", ["31 02:00", "31 02:30", "31 02:00", "31 02:30", "01 02:00"]),
        ({"every": "1d", "at": "09:00"}, "2027-03-27T12:00Z", ["28 09:00", "29 09:00"]),
        ({"every": "1d", "at": "02:30"}, "2027-10-30T12:00Z", ["31 02:30", "01 02:30"]),
    ],
)
def test_days_on_which_the_clocks_change(
    clock: SettableClock, delivery: TestDelivery, rule: dict[str, Any], begin: str, local: list[str]
) -> None:
    clock.set(datetime.fromisoformat(begin))
    delivery.schedules.put("a", zone="Europe/Berlin", **rule, **TO_BILLING)
    found = nominal(delivery.dispatch_for(hours=45))
    assert [f"{each.astimezone(ZoneInfo('Europe/Berlin')):%d %H:%M}" for each in found][: len(local)] == local
    assert len({*found}) == len(found)


# The audit trail and the history.


def test_each_change_has_an_entry(delivery: TestDelivery, store: OperableDelayedMessageStore) -> None:
    schedules = delivery.schedules_as(Way.CLI, "ann")
    schedules.put("a", every=MINUTE, **TO_BILLING)
    schedules.put("a", every=MINUTE, **TO_BILLING)  # nothing changes
    schedules.put("a", every=HOUR, **TO_BILLING)
    schedules.pause("a")
    schedules.resume("a")
    schedules.skip("a", NOON + HOUR)
    schedules.trigger("a")
    schedules.backfill("a", NOON - HOUR, NOON)
    schedules.put_all(below("t/b"), prefix="t/", dry_run=True)
    schedules.put_all(below("t/b"), prefix="t/")
    schedules.put_all([], prefix="t/")
    schedules.delete("a")
    delivery.schedules.put("b", every=MINUTE, **TO_BILLING)  # a program's own, which is not noted
    found = [(each.action, each.about) for each in reversed(store.changes())]
    assert found == [
        ("put", "schedule a"),
        ("put", "schedule a"),
        ("pause", "schedule a"),
        ("resume", "schedule a"),
        ("skip", "schedule a at 2027-01-01 13:00:00Z"),
        ("trigger", "schedule a"),
        ("backfill", "schedule a from 2027-01-01 11:00:00Z to 2027-01-01 12:00:00Z: 1 occurrence"),
        ("put", "schedule t/b"),
        ("delete", "schedule t/b"),
        ("delete", "schedule a"),
    ]
    assert {(each.by, each.way) for each in store.changes()} == {("ann", Way.CLI)}
    assert state_of(delivery, "b").changed == NOON


def test_occurrences_that_an_edit_removes_are_in_the_history(
    store: OperableDelayedMessageStore, clock: SettableClock
) -> None:
    with TestDelivery("sales", store, clock=clock, settings=DelayedDeliverySettings(history="30d")) as delivery:
        delivery.dispatch_due()  # begins the history
        delivery.schedules.put("a", every=MINUTE, **TO_BILLING)
        removed = [each.message_id for each in delivery.waiting()]
        delivery.schedules_as(Way.CLI, "ann").put("a", every=HOUR, **TO_BILLING)
        found = delivery.operations.history(HistoryFilter()).entries
    assert sorted(each.message_id for each in found) == removed
    assert {(each.ending, each.by) for each in found} == {(Ending.CANCELLED, "ann")}


# Dispatchers, processes and threads.


def test_two_dispatchers_deliver_each_occurrence_once(database_url: str) -> None:
    """By the real clock, while the schedule is put by a third store."""
    transport = RecordingTransport()
    transport.declare("billing")
    memory = InMemoryDelayedMessageStore()
    stores = [SqlDelayedMessageStore(database_url) if database_url else memory.share() for _ in range(3)]
    with DelayedDelivery("sales", stores[2]) as delivery:
        for each in stores[:2]:
            each.initialize("sales", TransactionMode.RECEIVE_ONLY)
        first, second = (Dispatcher(each, transport) for each in stores[:2])
        with running(first), running(second):
            delivery.schedules.put("a", every=1, **TO_BILLING)
            wait_until(lambda: len(transport.sent) >= 3)
        delivered = nominal(transport.sent)
        assert delivered == times(delivered[0], len(delivered), SECOND)
    for each in stores[:2]:
        each.close()


@pytest.mark.parametrize("kind", ["postgresql", long("mariadb")])
def test_a_dispatcher_does_not_wait_for_a_schedule_that_a_transaction_has_changed(
    request: pytest.FixtureRequest, clock: SettableClock, kind: str
) -> None:
    url = request.getfixturevalue(f"prepared_{kind}_url")
    with TestDelivery("sales", SqlDelayedMessageStore(url, clock=clock), clock=clock) as delivery:
        for name in ("a", "b"):
            delivery.schedules.put(name, every=HOUR, **TO_BILLING)
        clock.advance(hours=1)
        with ThreadPoolExecutor(1) as threads:
            with delivery.engine.begin() as connection:
                delivery.enlist(connection).schedules.trigger("a")
                found = threads.submit(delivery.dispatch_due).result(PATIENCE)
                assert [each.headers["delaystore.schedule"] for each in found] == ["b"]
            assert len(delivery.dispatch_due()) == 2


# Stores and tables without schedules, and rows that cannot be read.


def test_a_store_without_schedules() -> None:
    with DelayedDelivery("sales", FiveMethodStore()) as delivery:
        for refused in (lambda: delivery.schedules.put("a", every=1, **TO_BILLING), lambda: delivery.schedules.list()):
            with pytest.raises(ConfigurationError, match="FiveMethodStore keeps no schedules; use a"):
                refused()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", long("mariadb")])
def test_tables_of_an_earlier_release(request: pytest.FixtureRequest, kind: str) -> None:
    url = request.getfixturevalue(f"prepared_{kind}_url")
    execute(url, "DROP TABLE sales_delayed_schedules", "UPDATE sales_delayed_version SET version_num = '0007'")
    transport = RecordingTransport()
    transport.declare("billing")
    manual = DelayedDeliverySettings(automatic_setup=False)
    with DelayedDelivery("sales", SqlDelayedMessageStore(url), transport, settings=manual) as delivery:
        delivery.send("billing", b"first", delay=0)
        wait_until(lambda: bodies(transport.sent) == [b"first"])
        schedules = delivery.schedules
        for refused in (lambda: schedules.put("a", every=1, **TO_BILLING), lambda: schedules.list()):
            with pytest.raises(StoreSetupError, match="without schedules; run `delaystore setup` to upgrade it"):
                refused()
        upgrading = SqlDelayedMessageStore(url)
        upgrading.initialize("sales", TransactionMode.NONE)
        upgrading.setup_infrastructure()
        upgrading.close()
        assert delivery.schedules.put("a", every=1, **TO_BILLING) is PutResult.CREATED
        wait_until(lambda: len(transport.sent) >= 2)


def test_a_settable_clock_passes_over_tables_of_an_earlier_release(sqlite_url: str, clock: SettableClock) -> None:
    with TestDelivery("sales", SqlDelayedMessageStore(sqlite_url, clock=clock), clock=clock) as delivery:
        delivery.send("billing", b"pay", delay=60)
    name = "sales_delayed_test_clock"
    execute(sqlite_url, f"DROP TABLE {name}_schedules", f"UPDATE {name}_version SET version_num = '0007'")
    store = SqlDelayedMessageStore(sqlite_url, clock=clock)
    with TestDelivery("sales", store, clock=clock, settings=DelayedDeliverySettings(automatic_setup=False)) as delivery:
        assert bodies(delivery.dispatch_for(minutes=2)) == [b"pay"]


def test_a_role_without_rights_on_schedules_forwards_messages(
    postgresql: PostgreSQLDatabases, prepared_postgresql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    role = f"without_schedules_{token_hex(4)}"
    url = postgresql.create_role(role, "secret", prepared_postgresql_url)
    rights = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
    execute(prepared_postgresql_url, rights, f"REVOKE ALL ON sales_delayed_schedules FROM {role}")
    transport = RecordingTransport()
    transport.declare("billing")
    manual = DelayedDeliverySettings(automatic_setup=False)
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(url), settings=manual)) as delivery:
        delivery.send("billing", b"cron", delay=0)
        with closing(SqlDelayedMessageStore(url)) as store:
            dispatcher = Dispatcher(store, transport, manual, endpoint="sales")
            assert dispatcher.dispatch_due().delivered == 1
            assert "cannot make occurrences of schedules: the database does not allow it" in caplog.text
            with running(dispatcher):
                delivery.send("billing", b"loop", delay=0)
                wait_until(lambda: bodies(transport.sent) == [b"cron", b"loop"])
        with pytest.raises(StorePermissionError, match="sales_delayed_schedules"):
            delivery.schedules.put("a", every=1, **TO_BILLING)


DAMAGED: Final = ('{"cron": "0 0 31 2 *"}', '{"cron": "* * * * *", "zone": "Mars/Olympus"}', "{}", "[]", "{broken")
UNFIT: Final = ('"jitter": 1e300', '"max_late": "x"', '"starts": "2027-01-01T00:00:00"', '"starts": 5', '"max_runs": 0')


@pytest.mark.parametrize("definition", [*DAMAGED, *(f'{{"every": 60, {each}}}' for each in UNFIT)])
def test_a_row_that_cannot_be_read_blocks_no_other(
    sql_delivery: TestDelivery, prepared_sqlite_url: str, caplog: pytest.LogCaptureFixture, definition: str
) -> None:
    delivery = sql_delivery
    for name in "abcd":
        delivery.schedules.put(name, every=MINUTE, **TO_BILLING)
    with connected(prepared_sqlite_url) as connection:
        damage = "UPDATE sales_delayed_test_clock_schedules SET definition = :it WHERE name IN ('b', 'd')"
        assert connection.execute(text(damage), {"it": definition}).rowcount == 2
    delivery.dispatch_for(minutes=5)
    made = Counter(each.headers["delaystore.schedule"] for each in delivery.delivered())
    assert made == {"a": 5, "b": 2, "c": 5, "d": 2}
    assert "the schedule 'b' makes no occurrences" in caplog.text
    assert [each.name for each in delivery.schedules.list()] == ["a", "c"]
    assert "the schedule 'b' is not listed" in caplog.text
    assert [each.name for each in delivery.schedules.list(limit=2)] == ["a", "c"]
    assert delivery.schedules.delete("d") is True
    assert delivery.schedules.pause("b") is True
    for refused in (lambda: delivery.schedules.resume("b"), lambda: delivery.schedules.get("b")):
        with pytest.raises(InvalidScheduleError, match="the schedule 'b' cannot be read"):
            refused()
    assert delivery.schedules.put("b", every=MINUTE, destination="billing", body=b"new") is PutResult.CHANGED
    assert delivery.schedules.resume("b") is True
    assert b"new" in bodies(delivery.dispatch_for(minutes=2))


@pytest.mark.parametrize("progress", ["{}", '{"last": null, "ahead": [], "skips": [], "made": null}', "[]", "x"])
def test_a_row_that_could_not_be_read_for_a_while_goes_on(
    sql_delivery: TestDelivery, prepared_sqlite_url: str, progress: str
) -> None:
    delivery = sql_delivery
    delivery.schedules.put("a", every=MINUTE, max_runs=6, **TO_BILLING)
    delivery.dispatch_for(minutes=2)
    kept = select(column("definition"), column("progress")).select_from(table("sales_delayed_test_clock_schedules"))
    damage = text("UPDATE sales_delayed_test_clock_schedules SET progress = :it")
    with connected(prepared_sqlite_url) as connection:
        definition, before = connection.execute(kept).one()
        connection.execute(damage, {"it": progress})
    delivery.dispatch_for(minutes=3)
    assert delivery.schedules.pause("a") is True
    with connected(prepared_sqlite_url) as connection:
        assert connection.execute(kept).one() == (definition, progress)
        connection.execute(damage, {"it": before})
    assert delivery.schedules.resume("a") is True
    delivery.dispatch_for(hours=1)
    assert (state_of(delivery, "a").made, state_of(delivery, "a").remaining) == (6, 0)


# Mistakes.


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": " a"},
        {"name": "a\nb"},
        {"name": "x" * 201},
        {"name": None},
        {"name": "\udcff"},
        {"cron": None},
        {"every": 5},
        {"cron": "61 * * * *"},
        {"cron": "* * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": None, "every": 0},
        {"cron": None, "every": 0.5},
        {"cron": None, "every": "soon"},
        {"cron": None, "every": "1h", "at": "09:00"},
        {"cron": None, "every": "1d", "at": "9 o'clock"},
        {"zone": "Mars/Olympus"},
        {"zone": ""},
        {"destination": ""},
        {"body": None},
        {"body": "text"},
        {"json": 1},
        {"headers": {"x": ...}},
        {"headers": 5},
        {"properties": {"unknown": 1}},
        {"starts": datetime(2027, 1, 1)},  # noqa: DTZ001 - it has no time zone
        {"starts": "2027-01-01"},
        {"starts": NOON, "ends": NOON - DAY},
        {"max_runs": 0},
        {"max_runs": True},
        {"catch_up": "some"},
        {"max_late": -1},
        {"max_late": 0},
        {"max_late": float("inf")},
        {"jitter": 1e300},
        {"jitter": "often"},
        {"jitter": float("nan")},
        {"if_waiting": "wait"},
    ],
    ids=str,
)
def test_a_mistake_is_one_line(quick: TestDelivery, wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"cron": "* * * * *", **TO_BILLING, **wrong}
    with pytest.raises(InvalidScheduleError) as raised:
        quick.schedules.put(given.pop("name", "a"), **given)
    assert "\n" not in str(raised.value)
    assert 20 < len(str(raised.value)) < 400
    assert quick.schedules.list() == []


def test_times_of_upcoming_occurrences_increase(quick: TestDelivery) -> None:
    quick.schedules.put("a", cron="*/7 3 * * 1,4", zone="America/New_York", **TO_BILLING)
    found = quick.schedules.upcoming("a", 50)
    assert all(before < after for before, after in pairwise(found))
    assert list(found) == list(quick.schedules.preview(state_of(quick, "a").schedule, 50))
