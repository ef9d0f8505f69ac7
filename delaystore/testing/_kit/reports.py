"""Reports of dispatchers and ingresses to the store."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from delaystore.stores.documents import LatenessHistogram
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import ACTIVITY_KEPT, ALIVE, Activity, AuditEntry, DispatcherRecord, IngressRecord
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import FAR, HOUR, ME, NOON, TICK, StoreTests

MINUTE = timedelta(minutes=1)


def a_record(
    dispatcher_id: str = "one", name: str = "sales", heartbeat: datetime = NOON, **fields: object
) -> DispatcherRecord:
    """A dispatcher; name only the fields that matter."""
    defaults: dict[str, object] = {"host": "desk-4", "pid": 17, "version": "1.0", "since": NOON - HOUR}
    return DispatcherRecord(dispatcher_id=dispatcher_id, name=name, heartbeat=heartbeat, **(defaults | fields))  # type: ignore[arg-type]


def an_ingress(ingress_id: str = "one", queue: str = "orders.ingress", **fields: object) -> IngressRecord:
    """An ingress; name only the fields that matter."""
    defaults: dict[str, object] = {
        "host": "desk-4",
        "pid": 17,
        "version": "1.0",
        "since": NOON - HOUR,
        "heartbeat": NOON,
    }
    named = {"ingress_id": ingress_id, "queue": queue, "rejected_queue": f"{queue}.rejected"}
    return IngressRecord(**(named | defaults | fields))  # type: ignore[arg-type]


def late(*seconds: float) -> LatenessHistogram:
    """Messages that were so late."""
    histogram = LatenessHistogram()
    histogram.add(seconds)
    return histogram


def this_minute(store: OperableDelayedMessageStore) -> datetime:
    """The beginning of the minute that is now."""
    return store.now().replace(second=0, microsecond=0)


def dispatcher_ids(store: OperableDelayedMessageStore) -> list[str]:
    """Of live dispatchers."""
    return [each.dispatcher_id for each in store.dispatchers()]


@needs("operations")
class ReportTests(StoreTests):
    """Heartbeats, activity and changes."""

    def test_a_dispatcher_is_known_as_it_describes_itself(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        record = a_record(
            rate=12.5,
            breakers={"store": "closed", "transport": "öffen"},
            error_queue="errors",
            error_queue_depth=3,
            error_queue_seen=NOON + TICK,
            problem="the broker 'b' does not answer: ünreachable",
        )
        before = operable.now()
        operable.heartbeat(record)
        (found,) = colleague.dispatchers()
        assert replace(found, heartbeat=record.heartbeat, breakers=dict(found.breakers)) == record
        assert before - timedelta(seconds=1) <= found.heartbeat <= operable.now() + timedelta(seconds=1)
        operable.heartbeat(replace(record, problem=None, error_queue_depth=None, breakers={}, rate=0.0))
        (found,) = colleague.dispatchers()
        assert (found.problem, found.error_queue_depth, dict(found.breakers), found.rate) == (None, None, {}, 0.0)

    def test_those_that_live_are_known_by_name_and_id(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        assert list(operable.dispatchers()) == []
        for store, dispatcher_id, name in ((operable, "c", "a"), (colleague, "a", "b"), (operable, "b", "a")):
            store.heartbeat(a_record(dispatcher_id, name))
        assert dispatcher_ids(operable) == dispatcher_ids(colleague) == ["b", "c", "a"]
        colleague.retire("c")
        colleague.retire("nobody")
        assert dispatcher_ids(operable) == ["b", "a"]

    def test_who_says_nothing_for_long_is_dead_by_the_stores_clock(
        self, operable: OperableDelayedMessageStore, pass_time: Callable[[float], None]
    ) -> None:
        operable.heartbeat(a_record("ahead", heartbeat=FAR))
        operable.heartbeat(a_record("behind", heartbeat=NOON - timedelta(days=9_000)))
        assert sorted(dispatcher_ids(operable)) == ["ahead", "behind"]
        pass_time(ALIVE.total_seconds() / 2)
        operable.heartbeat(a_record("behind"))
        pass_time(ALIVE.total_seconds() / 2 + 1)
        assert dispatcher_ids(operable) == ["behind"]
        operable.heartbeat(a_record("ahead"))
        assert sorted(dispatcher_ids(operable)) == ["ahead", "behind"]

    def test_what_dispatchers_did_adds_up_minute_by_minute(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        now = this_minute(operable)
        first = Activity(
            minute=now - 2 * MINUTE,
            delivered=5,
            failed=1,
            moved_to_error_queue=2,
            deferred=3,
            lateness=late(0.01, 0.02, 90_000),
            by_destination={"billing": 4, "Billing": 1},
        )
        second = Activity(minute=first.minute, delivered=1, lateness=late(0.02), by_destination={"billing": 1, "ü": 1})
        third = Activity(minute=now, delivered=7)
        operable.heartbeat(a_record("a"), [third, first])
        colleague.heartbeat(a_record("b"), [second])
        found = colleague.activity(now - HOUR)
        assert [each.minute for each in found] == [now - 2 * MINUTE, now]
        both = found[0]
        assert (both.delivered, both.failed, both.moved_to_error_queue, both.deferred) == (6, 1, 2, 3)
        assert dict(both.by_destination) == {"billing": 5, "Billing": 1, "ü": 1}
        assert both.lateness.counts == late(0.01, 0.02, 90_000, 0.02).counts
        operable.heartbeat(a_record("a"), [third])
        assert [each.delivered for each in operable.activity(now - HOUR)] == [6, 14]

    def test_activity_is_asked_for_from_a_minute_on(self, operable: OperableDelayedMessageStore) -> None:
        now = this_minute(operable)
        minutes = [now - number * MINUTE for number in (3, 2, 1)]
        operable.heartbeat(a_record(), [Activity(minute=minute, delivered=1) for minute in minutes])
        assert [each.minute for each in operable.activity(minutes[1])] == minutes[1:]
        assert [each.minute for each in operable.activity(minutes[1] + TICK)] == minutes[2:]
        assert list(operable.activity(now + HOUR)) == []

    def test_a_retired_dispatchers_activity_stays(self, operable: OperableDelayedMessageStore) -> None:
        now = this_minute(operable)
        operable.heartbeat(a_record(), [Activity(minute=now, delivered=1)])
        operable.retire("one")
        assert [each.delivered for each in operable.activity(now)] == [1]

    def test_old_activity_goes(self, operable: OperableDelayedMessageStore) -> None:
        now = this_minute(operable)
        old, kept = now - ACTIVITY_KEPT - 2 * MINUTE, now - ACTIVITY_KEPT + HOUR
        operable.heartbeat(a_record(), [Activity(minute=minute, delivered=1) for minute in (old, kept)])
        operable.heartbeat(a_record())
        assert [each.minute for each in operable.activity(old - HOUR)] == [kept]

    def test_changes_are_told_the_newest_first(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        assert list(operable.changes()) == []
        entries = [
            AuditEntry(
                at=NOON + number * TICK,
                by=ME,
                action="cancel",
                about=f"'{number}' of ünïcödé 🕰 {'x' * 300}",
                count=number,
            )
            for number in range(5)
        ]
        for number in (0, 3, 1, 4, 2):
            (operable if number % 2 else colleague).note_changes([entries[number]])
        assert list(operable.changes()) == entries[::-1]
        assert list(colleague.changes(2)) == [entries[4], entries[3]]
        assert list(operable.changes(before=NOON + 2 * TICK)) == [entries[1], entries[0]]
        assert list(operable.changes(1, NOON + 2 * TICK)) == [entries[1]]
        assert list(operable.changes(before=NOON)) == []

    def test_changes_of_one_instant_are_all_kept(self, operable: OperableDelayedMessageStore) -> None:
        entry = AuditEntry(at=NOON, by=ME, action="pause", about="billing", count=2**40)
        for _ in range(3):
            operable.note_changes([entry])
        assert list(operable.changes()) == [entry] * 3

    def test_many_changes_are_noted_at_once_in_their_order(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        entries = [
            AuditEntry(at=NOON, by=f"{ME} {number}", action="cancel", about=f"message {number}", count=1)
            for number in range(30)
        ]
        operable.note_changes([])
        assert list(colleague.changes()) == []
        operable.note_changes(entries)
        assert list(colleague.changes()) == entries[::-1]


def ingress_ids(store: OperableDelayedMessageStore) -> list[str]:
    """Of reported dispatchers."""
    return [each.ingress_id for each in store.ingresses()]


@needs("operations", "ingresses")
class IngressReportTests(StoreTests):
    """Reports of ingresses."""

    def test_an_ingress_is_known_as_it_describes_itself(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        assert list(operable.ingresses()) == []
        record = an_ingress(
            stored=2**40,
            rejected=3,
            unacknowledged=2,
            why_unacknowledged="the rejected queue is füll",
            rejected_depth=4,
            rejected_seen=NOON + TICK,
            breakers={"intake": "armed", "consume": "disarmed"},
            problem="there is no queue 'orders.ingress'",
        )
        before = operable.now()
        operable.heartbeat_of_ingress(record)
        (found,) = colleague.ingresses()
        assert replace(found, heartbeat=record.heartbeat, breakers=dict(found.breakers)) == record
        assert before - timedelta(seconds=1) <= found.heartbeat <= operable.now() + timedelta(seconds=1)
        operable.heartbeat_of_ingress(an_ingress())
        (found,) = colleague.ingresses()
        assert replace(found, heartbeat=NOON, breakers={}) == replace(an_ingress(), breakers={})

    def test_ingresses_are_told_by_queue_and_id_until_they_end(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        for store, ingress_id, queue in ((operable, "c", "a"), (colleague, "a", "b"), (operable, "b", "a")):
            store.heartbeat_of_ingress(an_ingress(ingress_id, queue))
        assert ingress_ids(operable) == ingress_ids(colleague) == ["b", "c", "a"]
        colleague.retire_ingress("c")
        colleague.retire_ingress("nobody")
        assert ingress_ids(operable) == ["b", "a"]

    def test_dispatchers_and_ingresses_are_told_apart(self, operable: OperableDelayedMessageStore) -> None:
        operable.heartbeat(a_record("one"))
        operable.heartbeat_of_ingress(an_ingress("one"))
        assert dispatcher_ids(operable) == ingress_ids(operable) == ["one"]
        operable.retire("one")
        assert (dispatcher_ids(operable), ingress_ids(operable)) == ([], ["one"])
        operable.heartbeat(a_record("one"))
        operable.retire_ingress("one")
        assert (dispatcher_ids(operable), ingress_ids(operable)) == (["one"], [])

    def test_of_a_queue_that_has_no_ingress_any_more_the_last_one_is_told(
        self, operable: OperableDelayedMessageStore, pass_time: Callable[[float], None]
    ) -> None:
        operable.heartbeat_of_ingress(an_ingress("first", "a"))
        operable.heartbeat_of_ingress(an_ingress("other", "b"))
        pass_time(ALIVE.total_seconds() / 2)
        operable.heartbeat_of_ingress(an_ingress("last", "a"))
        pass_time(ALIVE.total_seconds() + 1)
        assert [(each.ingress_id, each.is_offline(operable.now())) for each in operable.ingresses()] == [
            ("last", True),
            ("other", True),
        ]
        operable.heartbeat_of_ingress(an_ingress("new", "b"))
        assert [(each.ingress_id, each.is_offline(operable.now())) for each in operable.ingresses()] == [
            ("last", True),
            ("new", False),
        ]

    def test_an_ingress_that_died_stays_away_once_another_one_has_taken_from_its_queue(
        self,
        operable: OperableDelayedMessageStore,
        colleague: OperableDelayedMessageStore,
        pass_time: Callable[[float], None],
    ) -> None:
        for ingress_id, queue in (("died", "a"), ("died earlier", "a"), ("elsewhere", "b")):
            operable.heartbeat_of_ingress(an_ingress(ingress_id, queue))
        pass_time(ALIVE.total_seconds() + 1)
        colleague.heartbeat_of_ingress(an_ingress("next", "a"))
        colleague.retire_ingress("next")
        assert ingress_ids(operable) == ["elsewhere"]

    def test_an_ingress_that_died_beside_another_one_goes_with_the_end_of_that(
        self, operable: OperableDelayedMessageStore, pass_time: Callable[[float], None]
    ) -> None:
        for ingress_id, queue in (("died", "a"), ("ends", "a"), ("elsewhere", "b")):
            operable.heartbeat_of_ingress(an_ingress(ingress_id, queue))
        pass_time(ALIVE.total_seconds() + 1)
        operable.retire_ingress("ends")
        assert ingress_ids(operable) == ["elsewhere"]

    def test_ingresses_that_live_on_one_queue_stay_when_one_of_them_ends(
        self, operable: OperableDelayedMessageStore, pass_time: Callable[[float], None]
    ) -> None:
        operable.heartbeat_of_ingress(an_ingress("late", "a"))
        pass_time(ALIVE.total_seconds() / 2)
        operable.heartbeat_of_ingress(an_ingress("ends", "a"))
        operable.heartbeat_of_ingress(an_ingress("lives", "a"))
        operable.retire_ingress("ends")
        assert ingress_ids(operable) == ["late", "lives"]
