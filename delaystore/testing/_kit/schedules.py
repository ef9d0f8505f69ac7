"""Recurring schedules: their rows in a transaction, their occurrences, and changes by several stores at once."""

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest

from delaystore.message import DelayedMessage
from delaystore.operations.changes import Actor
from delaystore.schedules.definition import Schedule
from delaystore.schedules.making import HORIZON, make_due
from delaystore.schedules.rules import zone_fingerprint
from delaystore.schedules.service import PutResult, ScheduleAccess, Schedules
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.history import HistoryFilter, StoreWithHistory
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import Ending, Way
from delaystore.stores.schedules import (
    ScheduleProgress,
    ScheduleRows,
    StoredSchedule,
    StoreWithSchedules,
    occurrence_id,
    schedule_rows,
)
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import (
    DEADLINE,
    HOUR,
    ME,
    NOON,
    SECOND,
    TICK,
    StoreFactory,
    StoreTests,
    Undone,
    a_message,
    as_operable,
    claimed,
    exactly,
    ids,
    search_all,
)
from delaystore.testing._kit._concurrency import together

DAY: Final = timedelta(days=1)
MINUTE: Final = timedelta(minutes=1)
EVERY_SECOND: Final = {"every": 1, "starts": "2031-01-01T00:00:00+00:00"}


def a_row(name: str, look_at: datetime | None = NOON, **fields: Any) -> StoredSchedule:
    """The row of a schedule; name only the fields that matter."""
    defaults: dict[str, Any] = {
        "destination": "billing",
        "body": b"body",
        "definition": EVERY_SECOND,
        "zone": "UTC",
        "zone_rules": zone_fingerprint("UTC"),
        "next_due": look_at,
        "progress": ScheduleProgress(),
        "changed": NOON,
        "changed_by": ME,
    }
    return StoredSchedule(name=name, look_at=look_at, **(defaults | fields))


@contextmanager
def rows_of(store: DelayedMessageStore) -> Iterator[ScheduleRows]:
    """The rows of schedules in a block of `transaction()`."""
    assert isinstance(store, StoreWithSchedules), "the flag schedules is for a StoreWithSchedules"
    assert store.has_schedules
    with store.transaction() as transaction:
        yield schedule_rows(transaction)


def add(store: DelayedMessageStore, *rows: StoredSchedule) -> None:
    """Add rows in a transaction of their own."""
    with rows_of(store) as schedules:
        assert schedules.add(rows)


def names(rows: Sequence[StoredSchedule]) -> list[str]:
    """The names of `rows`, in their order."""
    return [row.name for row in rows]


def listed(store: DelayedMessageStore, prefix: str = "", **page: Any) -> list[str]:
    """The names that `list` finds."""
    with rows_of(store) as rows:
        return names(rows.list(prefix, **page))


def assert_same_row(actual: StoredSchedule, expected: StoredSchedule) -> None:
    """Fail, naming the field, unless `actual` is `expected`, types included."""
    for field in dataclasses.fields(expected):
        value, wanted = getattr(actual, field.name), getattr(expected, field.name)
        if field.name == "progress":
            value, wanted = value.text(), wanted.text()
        assert exactly(value) == exactly(wanted), field.name


def an_occurrence(name: str, nominal: datetime = NOON) -> DelayedMessage:
    """The occurrence of a schedule at a time."""
    return a_message(occurrence_id(name, nominal), nominal)


def schedules_of(store: DelayedMessageStore) -> Schedules:
    """The service for schedules on top of a store."""
    access = ScheduleAccess(
        opened=lambda _: rows_of(store), check=lambda _: None, wake_up=lambda: None, actor=Actor(by=ME, way=Way.CLI)
    )
    return Schedules(access)


def make_all(store: DelayedMessageStore, limit: int) -> list[str]:
    """Make occurrences, `limit` rows in each transaction, until none is to be made; returns nothing."""
    while True:
        with rows_of(store) as rows:
            first, now = rows.next_look(), rows.transaction.now()
        if first is None or first > now:
            return []
        with rows_of(store) as rows:
            make_due(rows, limit)


@needs("operations", "schedules")
class ScheduleRowTests(StoreTests):
    """Rows of schedules, each method of `ScheduleRows` alone."""

    @pytest.mark.parametrize(
        "name", ["a", "Ünïcödé/日本", "a%b_c\\d", "'; DROP TABLE x; --", 'a "quoted" name', "x" * 200, "trailing/"]
    )
    def test_a_row_comes_back_as_it_was_written(self, store: DelayedMessageStore, name: str) -> None:
        known = {"bytes": b"\0\xff", "text": "ü 🕰", "one": 1, "yes": True, "map": {"": [None, 1.5]}}
        fields: dict[str, Any] = {"destination": "ümläut/" * 20, "body": bytes(range(256)), "headers": known}
        fields |= {"properties": {"content_type": "text/plain", "priority": 9}, "paused": True, "version": 7}
        fields |= {"definition": {"cron": "30 2 * * *", "both_days": True, "jitter": 0.5}, "next_due": NOON + DAY}
        fields |= {"zone": "America/North_Dakota/New_Salem", "zone_rules": "0123456789ab", "changed": NOON + TICK}
        progress: dict[str, Any] = {"made": 10**12, "missed": 2, "overlapped": 3, "skipped": 4, "remaining": 0}
        progress |= {"last": NOON - HOUR, "ahead": (NOON, NOON + SECOND), "skips": (NOON + DAY,)}
        row = a_row(name, progress=ScheduleProgress(**progress), **fields)
        bare = a_row("bare", None, body=b"", progress=ScheduleProgress(remaining=3))
        add(store, row, bare)
        with rows_of(store) as rows:
            assert_same_row(rows.lock([name])[name], row)
            found = {each.name: each for each in rows.list()}
        assert_same_row(found[name], row)
        assert_same_row(found["bare"], bare)

    def test_lock_finds_the_rows_that_there_are(self, store: DelayedMessageStore) -> None:
        add(store, a_row("a"), a_row("A"), a_row("a "), a_row("ä"))
        with rows_of(store) as rows:
            assert sorted(rows.lock(["a", "none", "ä"])) == ["a", "ä"]
            assert rows.lock([]) == {}

    def test_rows_to_look_at_come_in_the_order_of_their_time(self, store: DelayedMessageStore) -> None:
        add(store, a_row("c"), a_row("later", NOON + SECOND), a_row("b"), a_row("z", NOON - DAY), a_row("off", None))
        with rows_of(store) as rows:
            assert rows.next_look() == NOON - DAY
            assert rows.take_due(NOON - DAY - SECOND, 10) == []
            assert names(rows.take_due(NOON, 2)) == ["z", "b"]
            assert names(rows.take_due(NOON, 10)) == ["z", "b", "c"]

    @pytest.mark.parametrize("method", ["take_due", "of_zone"])
    def test_a_row_that_is_locked_goes_to_no_other(
        self, store: DelayedMessageStore, other: DelayedMessageStore, method: str
    ) -> None:
        """The other one leaves it out, or waits until the first has ended, and then sees the row as it is."""
        add(store, a_row("a"), a_row("b"))

        def take() -> list[str]:
            with rows_of(other) as rows:
                taken = rows.take_due(NOON, 10) if method == "take_due" else rows.of_zone("UTC", "old", 10)
                return names(taken)

        with ThreadPoolExecutor(1) as pool:
            with rows_of(store) as rows:
                row = rows.lock(["a"])["a"]
                result = pool.submit(take)
                assert _is_slow(result) or "a" not in result.result()
                rows.advance([dataclasses.replace(row, look_at=None, zone_rules="new")])
            assert "a" not in result.result(DEADLINE)

    def test_a_lock_waits_and_then_sees_the_row_as_it_is(
        self, store: DelayedMessageStore, other: DelayedMessageStore
    ) -> None:
        add(store, a_row("a"))

        def lock() -> int:
            with rows_of(other) as rows:
                return rows.lock(["a"])["a"].version

        with ThreadPoolExecutor(1) as pool:
            with rows_of(store) as rows:
                row = rows.lock(["a"])["a"]
                result = pool.submit(lock)
                assert _is_slow(result)
                rows.write([dataclasses.replace(row, version=2)])
            assert result.result(DEADLINE) == 2

    def test_a_name_is_added_once(self, store: DelayedMessageStore, other: DelayedMessageStore) -> None:
        def put(body: bytes, handle: DelayedMessageStore) -> list[str]:
            for number in range(10):
                schedules_of(handle).put(f"s{number}", every=DAY, destination="billing", body=body)
            return []

        together(partial(put, b"1", store), partial(put, b"2", other))
        with rows_of(store) as rows:
            found = rows.list()
        assert names(found) == [f"s{number}" for number in range(10)]
        assert {each.version for each in found} <= {1, 2}

    def test_write_changes_all_and_advance_the_progress_alone(self, store: DelayedMessageStore) -> None:
        add(store, a_row("a"), a_row("b"), a_row("c"))
        fields: dict[str, Any] = {"destination": "sales", "headers": {"b": b"1"}, "paused": True, "version": 2}
        fields |= {"body": b"new", "definition": {"cron": "* * * * *"}, "changed": NOON + DAY, "changed_by": "you"}
        advanced: dict[str, Any] = {"look_at": None, "next_due": NOON + DAY, "zone_rules": "other"}
        advanced |= {"progress": ScheduleProgress(last=NOON, made=3)}
        with rows_of(store) as rows:
            changed = [dataclasses.replace(each, **fields, **advanced) for each in rows.lock(["a", "b"]).values()]
            rows.write(changed[:1])
            rows.advance(changed[1:])
            rows.write([])
            rows.advance([])
        with rows_of(store) as rows:
            a, b, c = rows.list()
        assert_same_row(a, changed[0])
        assert_same_row(b, dataclasses.replace(a_row("b"), **advanced))
        assert_same_row(c, a_row("c"))

    def test_what_is_undone_leaves_everything_as_it_was(self, store: DelayedMessageStore) -> None:
        add(store, a_row("a"), a_row("b"))
        store.store(an_occurrence("a"))
        with pytest.raises(Undone), rows_of(store) as rows:
            known = rows.lock(["a", "b"])
            rows.write([dataclasses.replace(known["a"], version=2)])
            rows.delete(["b"])
            assert rows.add([a_row("c")])
            assert rows.remove_occurrences([occurrence_id("a", NOON)], ME)
            rows.transaction.store_many([an_occurrence("a", NOON + SECOND)])
            raise Undone
        with rows_of(store) as rows:
            assert [(each.name, each.version) for each in rows.list()] == [("a", 1), ("b", 1)]
            assert rows.occurrences("a/") == [occurrence_id("a", NOON)]

    def test_a_row_that_is_deleted_is_gone(self, store: DelayedMessageStore) -> None:
        add(store, a_row("a"), a_row("ab"), a_row("b"))
        with rows_of(store) as rows:
            rows.lock(["a", "b"])
            rows.delete(["a", "b"])
            rows.delete([])
        assert listed(store) == ["ab"]
        add(store, a_row("a"))

    def test_pages_of_names_below_a_prefix(self, store: DelayedMessageStore) -> None:
        below = ["t%/", "t%/A", "t%/a", "t%/z", "t%/ä", "t%/日"]
        add(store, *(a_row(name) for name in ["t", "t%", *reversed(below), "t0/a", "T%/a", "tx/", "u"]))
        assert listed(store, "t%/") == below
        assert listed(store, "t%/", after="t%/A", limit=2) == ["t%/a", "t%/z"]
        assert listed(store, "t%/", after="t%/日") == []
        assert listed(store, limit=3) == ["T%/a", "t", "t%"]

    def test_rows_of_a_time_zone(self, store: DelayedMessageStore) -> None:
        berlin = partial(a_row, zone="Europe/Berlin")
        add(
            store,
            berlin("a", zone_rules="1"),
            berlin("b", zone_rules="2"),
            a_row("c", None),
            berlin("d", zone_rules="1"),
        )
        utc = ("UTC", zone_fingerprint("UTC"))
        with rows_of(store) as rows:
            assert sorted(rows.zones()) == [("Europe/Berlin", "1"), ("Europe/Berlin", "2"), utc]
            assert sorted(names(rows.of_zone("Europe/Berlin", "1", 10))) == ["a", "d"]
            assert len(rows.of_zone("Europe/Berlin", "1", 1)) == 1
            assert names(rows.of_zone(*utc, 10)) == ["c"]
            assert rows.of_zone("Europe/Paris", "1", 10) == []


def _is_slow(result: Any) -> bool:
    """Whether a future has no result after a while: the other transaction waits."""
    try:
        result.result(0.3)
    except TimeoutError:
        return True
    return False


@needs("operations", "schedules")
class OccurrenceTests(StoreTests):
    """Occurrences, which are ordinary messages, and schedules that several stores make and change at once."""

    def test_waiting_messages_below_a_prefix(self, store: DelayedMessageStore) -> None:
        below = [occurrence_id("a", NOON - DAY), occurrence_id("a", NOON), occurrence_id("a/b", NOON)]
        below += ["schedule/a/", "schedule/a/2031-01-01T12:00:00.000001Z", "schedule/a/never"]
        others = [occurrence_id(name, NOON) for name in ("A", "a%", "ab", "")] + ["schedule/a", "a/b"]
        store.store_many([a_message(each) for each in (*below, *others)])
        with rows_of(store) as rows:
            assert rows.occurrences("a/") == sorted(below)
            assert rows.occurrences("none/") == []
            assert set(rows.waiting_of([below[0], "none", others[1]])) == {below[0], others[1]}
            assert list(rows.waiting_of([])) == []
            assert rows.messages([below[1], "none"]).keys() == {below[1]}
            assert rows.messages([]) == {}

    def test_siblings_keep_their_occurrences(self, store: DelayedMessageStore) -> None:
        service, siblings = schedules_of(store), ["a", "a/b", "a/b/c", "ab", "A"]
        for name in siblings:
            service.put_schedule(Schedule.of(name, every=MINUTE, destination="q", body=b""))
        counts = {name: service.upcoming(name, 2) for name in siblings}
        assert service.delete("a/b")
        assert service.put_schedule(Schedule.of("a", every=MINUTE, destination="q", body=b"new")) is PutResult.CHANGED
        found = {each.message_id for each in search_all(as_operable(store))}
        for name in siblings:
            assert [occurrence_id(name, each) in found for each in counts[name]] == [name != "a/b"] * 2

    def test_occurrences_of_the_transaction_are_seen_in_it(self, store: DelayedMessageStore) -> None:
        with rows_of(store) as rows:
            rows.transaction.store_many([an_occurrence("a")])
            assert rows.occurrences("a/") == [occurrence_id("a", NOON)]
            assert set(rows.waiting_of([occurrence_id("a", NOON)])) == {occurrence_id("a", NOON)}
            assert set(rows.remove_occurrences([occurrence_id("a", NOON)], ME)) == {occurrence_id("a", NOON)}
            assert rows.occurrences("a/") == []

    def test_a_claimed_occurrence_stays(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        mine = [an_occurrence("a", NOON + number * SECOND) for number in range(3)]
        operable.store_many(mine)
        if isinstance(operable, StoreWithHistory):
            operable.keep_history(DAY)

        def remove() -> set[str]:
            with rows_of(operable) as rows:
                assert rows.occurrences("a/") == ids(mine)
                assert set(rows.waiting_of(ids(mine))) == set(ids(mine))
                return set(rows.remove_occurrences([*ids(mine)[:2], "none"], ME))

        with ThreadPoolExecutor(1) as pool, colleague.transaction() as transaction:
            assert claimed(transaction) == mine[0]
            # in a thread, so that one that waits for the block to end is noticed
            assert pool.submit(remove).result(DEADLINE) == {mine[1].message_id}
        assert ids(search_all(operable)) == [mine[0].message_id, mine[2].message_id]
        if isinstance(operable, StoreWithHistory):
            (entry,) = operable.history(HistoryFilter()).entries
            assert (entry.message_id, entry.ending, entry.by) == (mine[1].message_id, Ending.CANCELLED, ME)

    def test_two_stores_make_each_occurrence_once(self, open_store: StoreFactory) -> None:
        handles = [open_store() for _ in range(2)]
        now = handles[0].now().replace(microsecond=0)
        add(handles[0], *(a_row(f"s{number}", now - SECOND, definition=_each_second(now)) for number in range(30)))
        together(*(partial(make_all, handle, 3) for handle in handles))
        with rows_of(handles[0]) as rows:
            for row in rows.list():
                assert row.next_due is not None
                last = int((row.next_due - now).total_seconds())
                made = [occurrence_id(row.name, now + number * SECOND) for number in range(-1, last)]
                assert (rows.occurrences(f"{row.name}/"), row.progress.made) == (made, len(made))
                assert row.next_due > now + HORIZON

    def test_changes_while_another_store_makes_occurrences(self, open_store: StoreFactory) -> None:
        """After an edit there are those of the new definition alone; after a deletion there are none."""
        handles = [open_store() for _ in range(2)]
        now, service = handles[0].now().replace(microsecond=0), schedules_of(handles[0])
        rows = [a_row(f"s{number:02}", now - SECOND, definition=_each_second(now)) for number in range(30)]
        add(handles[0], *rows)

        def change() -> list[str]:
            for row in rows:
                service.put_schedule(dataclasses.replace(Schedule.of_row(row), body=b"new"))
            return [row.name for row in rows[::3] if service.delete(row.name)]

        assert together(change, partial(make_all, handles[1], 1)) == [names(rows[::3]), []]
        found = {each.message_id: each.body for each in search_all(as_operable(handles[0]))}
        assert set(found.values()) == {b"new"}
        states = service.list()
        assert [each.name for each in states] == [row.name for row in rows if row not in rows[::3]]
        assert len(found) == sum(each.made for each in states)
        for state in states:
            times = service.upcoming(state.name, 100)
            assert {occurrence_id(state.name, each) for each in times} <= found.keys()


def _each_second(starts: datetime) -> dict[str, Any]:
    return {"every": 1, "starts": (starts - HOUR).isoformat(), "catch_up": "all"}
