"""Loads as units, on each database: counts, cancel, pause and resume, and what these do not reach."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from delaystore import DelayedDelivery, DelayedDeliverySettings, MessageFilter
from delaystore.bulk.options import OnDuplicate, StoreOptions, replacing
from delaystore.bulk.staging import LoadKey, cleanup
from delaystore.dispatcher import Dispatcher
from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    InvalidMessageError,
    LoadLostError,
    UnknownLoadError,
)
from delaystore.message import DelayedMessage, KeyRule, OnKey
from delaystore.operations import Operations
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.records import DispatcherRecord, LoadPhase, OperationState, Way, name_of_load
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from delaystore.testing import RecordingTransport
from delaystore.transports.abc import Outcome, OutcomeKind
from tests.dispatching import wait_until
from tests.integration.loading import end_lease, load, row, rows, staged, staging_of
from tests.integration.sql_stores import execute, opened, query, url_for

pytestmark = pytest.mark.long_runs("partitions", "mariadb")

HOUR = timedelta(hours=1)
SPRING = MessageFilter(load="spring")


@pytest.fixture(params=["sqlite", "postgresql", "partitions", "mariadb"])
def database_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty database of each kind; PostgreSQL also with a bulk partition for each load."""
    if request.param == "partitions":
        limits = PartitionLimits(fewest_rows=1, smallest_table=0)
        monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", limits)
    return url_for(request, "postgresql" if request.param == "partitions" else request.param)


@pytest.fixture
def operations(store: SqlDelayedMessageStore, database_url: str) -> Iterator[Operations]:
    with DelayedDelivery("sales", SqlDelayedMessageStore(database_url)) as delivery:
        yield delivery.operations.acting_as("ada")


def due(store: SqlDelayedMessageStore, messages: Sequence[DelayedMessage], seconds: float = -1) -> list[DelayedMessage]:
    at = store.now() + timedelta(seconds=seconds)
    return [replace(each, due_time=at, next_attempt=at) for each in messages]


def ids(operations: Operations, wanted: MessageFilter) -> list[str]:
    return [each.message_id for each in operations.export(wanted)]


def test_a_load_finds_its_messages_and_no_others(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    store.store_many(rows(30, "single"))
    load(database_url, "spring", rows(25, "s"))
    load(database_url, "autumn", rows(20, "a"))
    assert ids(operations, SPRING) == [each.message_id for each in rows(25, "s")]
    assert operations.preview(MessageFilter(load="autumn", id_prefix="a-0001")).count == 10
    found = operations.loads.get("spring")
    assert (found.state, found.stored, found.waiting, found.delivered) == (LoadPhase.WAITING, 25, 25, 0)
    assert (found.first_due, found.last_due) == (row("m", 0).due_time, row("m", 24).due_time)
    assert [each.load_id for each in operations.loads.list()] == ["autumn", "spring"]


def test_counts_add_up_however_messages_leave(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", due(store, rows(20, "s")))
    store.cancel("s-00000")
    assert operations.cancel_one("s-00001").value == "done"
    operations.cancel(MessageFilter(id_prefix="s-0000"))
    load(database_url, "again", due(store, rows(12, "s"))[10:], OnDuplicate.REPLACE)
    assert Dispatcher(store, RecordingTransport()).dispatch_due().delivered == 10
    found = operations.loads.get("spring")
    assert (found.cancelled, found.replaced, found.delivered, found.waiting) == (10, 2, 8, 0)
    assert found.state is LoadPhase.DONE
    assert operations.loads.get("again").delivered == 2


def test_a_cancel_reaches_all_that_waits_and_nothing_else(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    store.store_many(rows(10, "single"))
    load(database_url, "spring", [*due(store, rows(5, "due")), *rows(30, "s")])
    Dispatcher(store, RecordingTransport()).dispatch_due()
    ended = operations.loads.cancel("spring")
    assert (ended.state, ended.changed) == (OperationState.DONE, 30)
    found = operations.loads.get("spring")
    assert (found.state, found.delivered, found.cancelled, found.waiting) == (LoadPhase.CANCELLED, 5, 30, 0)
    assert found.cancelled_by == "ada"
    assert store.count() == 10
    assert operations.loads.cancel("spring").changed == 0


CALLS: dict[str, Callable[[Operations, str], object]] = {
    "show": lambda operations, load_id: operations.loads.get(load_id),
    "pause": lambda operations, load_id: operations.loads.pause(load_id),
    "resume": lambda operations, load_id: operations.loads.resume(load_id),
    "cancel": lambda operations, load_id: operations.loads.cancel(load_id),
    "filter": lambda operations, load_id: operations.cancel(MessageFilter(load=load_id)),
    "reschedule": lambda operations, load_id: operations.reschedule(MessageFilter(load=load_id), delay=1),
    "search": lambda operations, load_id: operations.search(MessageFilter(load=load_id)),
    "count": lambda operations, load_id: operations.preview(MessageFilter(load=load_id), sample=0),
    "per": lambda operations, load_id: operations.count_by_due_time(MessageFilter(load=load_id), HOUR),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_load_is_not_found(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, call: str
) -> None:
    with pytest.raises(UnknownLoadError, match="there is no load 'winter'; `delaystore loads list` shows the last"):
        CALLS[call](operations, "winter")
    for unfit in ("\udcff", "a\0b", ""):
        with pytest.raises((UnknownLoadError, InvalidMessageError), match=r"there is no load|is no load id"):
            CALLS[call](operations, unfit)
    assert operations.operations() == []


@pytest.mark.parametrize("call", [each for each in CALLS if each != "show"])
def test_the_messages_of_a_load_of_an_earlier_release_are_unknown(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, call: str
) -> None:
    load(database_url, "spring", rows(3))
    with store.engine.begin() as connection:
        connection.execute(text(f"UPDATE {store.table.name}_loads SET number = NULL"))
    with pytest.raises(ConfigurationError, match="'spring' is of an earlier release, which did not note its messages"):
        CALLS[call](operations, "spring")
    found = operations.loads.get("spring")
    assert (found.cancelled_at, found.paused, store.count()) == (None, False, 3)


def test_a_cancel_that_does_not_begin_leaves_the_load_as_it_is(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", rows(3))
    begun = operations.begin_cancel(MessageFilter(id_prefix="other"))
    with pytest.raises(ConfigurationError, match=begun.operation_id):
        operations.loads.begin_cancel("spring", operation_id=begun.operation_id)
    assert operations.loads.get("spring").state is LoadPhase.WAITING


def test_a_cancel_by_the_filter_of_a_load_cancels_the_load(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", rows(3))
    operations.cancel(MessageFilter(load="spring", id_prefix="m-00000"))
    assert operations.loads.get("spring").state is LoadPhase.WAITING
    operations.cancel(SPRING)
    assert operations.loads.get("spring").state is LoadPhase.CANCELLED


@pytest.mark.parametrize("again", [False, True], ids=["forgotten", "again"])
def test_an_old_operation_changes_no_message_of_a_later_load(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, *, again: bool
) -> None:
    load(database_url, "spring", rows(3))
    begun = operations.loads.begin_cancel("spring")
    store.advance_operation(begun.operation_id, examine=2)
    store.cancel("m-00002")
    if again:
        load(database_url, "spring", rows(5, "new"), again=True)
    else:
        with store.engine.begin() as connection:
            connection.execute(text(f"DELETE FROM {store.table.name}_loads"))
    ended = operations.run(begun.operation_id)
    assert (ended.state, ended.changed) == (OperationState.DONE, 2)
    assert store.count() == (5 if again else 0)


def test_changes_of_a_load_are_summed_up_at_times(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", rows(12))
    load(database_url, "autumn", rows(3, "a"))
    for number in range(10):
        store.cancel(f"m-{number:05d}")
    store.cancel("a-00000")
    load(database_url, "winter", rows(12)[10:], OnDuplicate.REPLACE)
    now = store.now()
    record = DispatcherRecord(dispatcher_id="d", name="n", host="h", pid=1, version="1", since=now, heartbeat=now)
    with opened(database_url) as fresh:
        fresh.heartbeat(record)
    with store.engine.connect() as connection:
        changes = connection.execute(text(f"SELECT messages FROM {store.table.name}_load_changes")).scalars().all()
    assert sorted(changes) == [1, 2, 10]
    found = operations.loads.get("spring")
    assert (found.cancelled, found.replaced, found.waiting) == (10, 2, 0)


def test_marks_change_no_due_time_that_is_shown(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    first, minute = datetime(2033, 5, 18, 9, tzinfo=UTC), timedelta(minutes=1)
    messages = [replace(row(each), due_time=at, next_attempt=at) for each, at in (("a", first), ("b", first + minute))]
    load(database_url, "spring", messages)
    for each in messages:  # a mark is a microsecond
        with pytest.raises(DuplicateMessageError):
            store.store(each)
    expected = {each.due_time: 1 for each in messages}
    assert operations.count_by_due_time(SPRING, minute) == expected
    assert store.count_by_due_time(minute) == expected
    found = operations.loads.get("spring")
    assert (found.first_due, found.last_due) == tuple(expected)


def test_a_list_counts_by_the_index_alone(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", rows(3))
    operations.reschedule(SPRING, by=HOUR)
    store.cancel("m-00000")
    (listed,) = operations.loads.list()
    assert (listed.exact, listed.waiting, listed.delivered, listed.cancelled) == (True, 2, 0, 1)
    assert (listed.failing, listed.first_due, listed.last_due) == (None, row("m").due_time, row("m", 2).due_time)
    store.cancel("m-00001")
    store.cancel("m-00002")
    (listed,) = operations.loads.list()
    assert (listed.state, listed.first_due, listed.last_due) == (LoadPhase.DONE, None, None)


def test_a_cancelled_load_is_loaded_again_only_if_that_is_meant(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", rows(5))
    operations.loads.cancel("spring")
    with pytest.raises(ConfigurationError, match=r"the load 'spring' was cancelled by ada at .*set the option again"):
        load(database_url, "spring", rows(5))
    assert load(database_url, "spring", rows(7), again=True).stored == 7
    found = operations.loads.get("spring")
    assert (found.state, found.stored, found.cancelled, found.waiting) == (LoadPhase.WAITING, 7, 0, 7)


def test_a_load_is_not_loaded_again_before_its_cancel_has_reached_all_of_it(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", rows(3, "first"))
    begun = operations.loads.begin_cancel("spring")
    with pytest.raises(ConfigurationError, match=r"'spring' is not loaded again, because messages of it still wait"):
        load(database_url, "spring", rows(2, "second"), again=True)
    assert operations.run(begun.operation_id).changed == 3
    load(database_url, "spring", rows(2, "second"), again=True)
    assert ids(operations, SPRING) == [each.message_id for each in rows(2, "second")]


@pytest.mark.parametrize("how", ["given up", "killed"])
def test_a_load_stays_cancelled_until_it_is_loaded_again_to_the_end(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, how: str
) -> None:
    load(database_url, "spring", rows(5))
    operations.loads.cancel("spring")
    staging = staging_of(database_url, again=True)
    staging.begin(LoadKey("spring"))
    staged(staging, rows(3))
    assert operations.loads.get("spring").state is LoadPhase.STAGING
    if how == "given up":
        staging.discard()
    else:
        end_lease(database_url)
        cleanup(StoreOptions(store=database_url, endpoint="sales"))
    found = operations.loads.get("spring")
    assert (found.state, found.cancelled, found.cancelled_by) == (LoadPhase.CANCELLED, 5, "ada")
    with pytest.raises(ConfigurationError, match="the load 'spring' was cancelled by ada"):
        load(database_url, "spring", rows(5))
    assert load(database_url, "spring", rows(4), again=True).stored == 4
    found = operations.loads.get("spring")
    assert (found.state, found.stored, found.cancelled, found.cancelled_by) == (LoadPhase.WAITING, 4, 0, None)


def test_a_load_that_is_loaded_again_can_be_cancelled_meanwhile(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", rows(5))
    operations.loads.cancel("spring")
    staging = staging_of(database_url, again=True)
    staging.begin(LoadKey("spring"))
    attempt = staged(staging, rows(3))
    operations.loads.cancel("spring")
    with pytest.raises(LoadLostError, match="'spring' was cancelled by ada; nothing of it was stored"):
        staging.promote([attempt], OnDuplicate.ERROR)
    assert (store.count(), operations.loads.get("spring").state) == (0, LoadPhase.CANCELLED)


def test_nothing_is_left_of_a_load_that_is_loaded_again(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", rows(3))
    operations.loads.cancel("spring")
    ((first,),) = query(database_url, "SELECT number FROM sales_delayed_loads")
    pause = "INSERT INTO sales_delayed_destinations (name, paused, resuming, changed, changed_by) VALUES"
    execute(database_url, f"{pause} ('{name_of_load(first)}', 1, 0, '2026-01-01 00:00:00.000000', 'ada')")
    load(database_url, "spring", rows(3), again=True)
    assert query(database_url, "SELECT * FROM sales_delayed_load_changes") == []
    assert query(database_url, "SELECT * FROM sales_delayed_destinations") == []


def test_a_failed_load_stays_paused_until_it_is_resumed(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    failed = staging_of(database_url)
    failed.begin(LoadKey("spring"))
    operations.loads.pause("spring")
    failed.discard()
    load(database_url, "spring", due(store, rows(3)))
    assert operations.loads.get("spring").paused
    assert Dispatcher(store, RecordingTransport()).dispatch_due().delivered == 0
    assert operations.loads.resume("spring") == 3

    failed = staging_of(database_url)
    failed.begin(LoadKey("autumn"))
    operations.loads.pause("autumn")
    failed.discard()
    operations.loads.resume("autumn")
    end_lease(database_url)
    assert cleanup(StoreOptions(store=database_url, endpoint="sales")).loads == ("autumn",)
    assert [each.load_id for each in operations.loads.list()] == ["spring"]


def test_a_load_that_is_cancelled_while_it_is_staged_stores_nothing(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    staging = staging_of(database_url)
    assert staging.begin(LoadKey("spring")) is None
    attempt = staged(staging, rows(5))
    assert operations.loads.get("spring").state is LoadPhase.STAGING
    operations.loads.cancel("spring")
    with pytest.raises(LoadLostError, match="'spring' was cancelled by ada; nothing of it was stored"):
        staging.promote([attempt], OnDuplicate.ERROR)
    assert store.count() == 0


def test_next_attempts_are_counted_for_each_destination(store: SqlDelayedMessageStore, database_url: str) -> None:
    noon, tick = datetime(2031, 1, 1, 12, tzinfo=UTC), timedelta(microseconds=1)
    times = (noon - tick, noon, noon + HOUR - tick, noon + HOUR, noon + 2 * HOUR)
    for name in ("billing", "Billing", "shipping"):
        store.store_many(
            [DelayedMessage(message_id=f"{name}{at}", destination=name, due_time=at, body=b"") for at in times]
        )
    store.store(replace(row("later"), due_time=noon, next_attempt=noon + HOUR))
    found = store.count_between_by_destination(noon, noon + 2 * HOUR, HOUR, ["billing", "Billing", "nothing", "b "])
    assert found == {"billing": {noon: 2, noon + HOUR: 2}, "Billing": {noon: 2, noon + HOUR: 1}}
    assert store.count_between_by_destination(noon, noon + HOUR, HOUR, []) == {}


def test_a_paused_load_is_kept_while_others_go(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", [*due(store, rows(4, "due")), *due(store, rows(3, "soon"), 3)])
    load(database_url, "autumn", due(store, rows(6, "a")))
    assert operations.loads.pause("spring") == 4
    assert operations.loads.get("spring").paused
    assert operations.destinations() == []
    transport = RecordingTransport()
    dispatcher = Dispatcher(store, transport)

    def are_parked() -> bool:
        dispatcher.dispatch_due()
        return operations.preview(MessageFilter(load="spring", paused=True)).count == 7

    wait_until(are_parked)
    assert {each.message_id[0] for each in transport.sent} == {"a"}
    assert operations.loads.resume("spring") == 7
    dispatcher.dispatch_due()
    assert len(transport.sent) == 13
    found = operations.loads.get("spring")
    assert (found.paused, found.delivered) == (False, 7)
    actions = [(each.action, each.about) for each in operations.changes()]
    assert actions == [("resume", "load spring"), ("pause", "load spring")]


def test_a_pause_of_a_load_can_end_by_itself(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", due(store, rows(3)))
    with pytest.raises(InvalidMessageError, match="is in the past"):
        operations.loads.pause("spring", until=store.now() - HOUR)
    operations.loads.pause("spring", until=store.now() + timedelta(seconds=0.5))
    transport = RecordingTransport()
    dispatcher = Dispatcher(store, transport)
    while len(transport.sent) < 3:
        store.unpark()
        dispatcher.dispatch_due()


def test_a_resumed_load_stays_with_a_paused_destination(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", due(store, rows(3)))
    operations.loads.pause("spring")
    operations.pause("billing")
    assert operations.loads.resume("spring") == 0
    assert Dispatcher(store, RecordingTransport()).dispatch_due().delivered == 0
    assert operations.resume("billing") == 3


def test_a_cancel_ends_the_pause_of_a_load(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", due(store, rows(3)))
    operations.loads.pause("spring")
    assert operations.loads.cancel("spring").changed == 3
    assert not operations.loads.get("spring").paused
    assert all(not each.paused for each in store.destinations())


@pytest.mark.parametrize("why", ["abandoned", "held", "filtered"])
def test_a_cancel_that_leaves_messages_leaves_the_load_paused(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, why: str
) -> None:
    load(database_url, "spring", [*due(store, rows(1, "due")), *rows(3)])
    with opened(database_url) as other, other.transaction() as claiming:
        if why == "held":
            claiming.fetch_due(other.now(), 1)
        operations.loads.pause("spring")
        if why == "filtered":
            operations.cancel(MessageFilter(load="spring", id_prefix="m-00000"))
        else:
            begun = operations.loads.begin_cancel("spring")
            if why == "abandoned":
                operations.abandon(begun.operation_id)
            operations.run(begun.operation_id)
    found = operations.loads.get("spring")
    assert (found.paused, found.waiting) == (True, {"abandoned": 4, "held": 1, "filtered": 3}[why])


def test_dispatchers_deliver_nothing_of_a_load_whose_cancel_has_begun(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", due(store, rows(5)))
    begun = operations.loads.begin_cancel("spring")
    assert Dispatcher(store, RecordingTransport()).dispatch_due().delivered == 0
    operations.abandon(begun.operation_id)
    assert not operations.loads.get("spring").paused
    store.unpark()
    assert Dispatcher(store, RecordingTransport()).dispatch_due().delivered == 5
    assert operations.loads.cancel("spring").changed == 0
    assert operations.loads.paused() == []


@pytest.mark.parametrize("then", ["delivered", "let go", "let go late"])
def test_a_cancel_comes_again_to_messages_that_a_dispatcher_had(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, then: str
) -> None:
    load(database_url, "spring", [*due(store, rows(3, "due")), *rows(4)])
    begun = operations.loads.begin_cancel("spring")
    with opened(database_url) as other, other.transaction() as claiming:
        claimed = claiming.fetch_due(other.now(), 3)
        first = store.advance_operation(begun.operation_id)
        assert first is not None
        assert (first.state, first.changed, first.held, len(first.held_ids)) == (OperationState.RUNNING, 4, 3, 3)
        if then == "delivered":
            claiming.remove_many(claimed)
        elif then == "let go late":
            again = store.advance_operation(begun.operation_id)
            assert again is not None
            assert (again.state, again.changed, again.held, len(again.held_ids)) == (OperationState.DONE, 4, 3, 3)
            assert operations.loads.get("spring").paused
    if then == "let go late":
        assert operations.loads.cancel("spring").changed == 3
    else:
        ended = operations.run(begun.operation_id)
        assert (ended.held, list(ended.held_ids)) == (0, [])
    found = operations.loads.get("spring")
    delivered = 3 if then == "delivered" else 0
    assert (found.cancelled, found.delivered, found.waiting, found.paused) == (7 - delivered, delivered, 0, False)


@pytest.mark.parametrize("abandoned", ["first", "second", "both"])
def test_of_two_cancels_of_a_load_the_last_one_keeps_it_paused(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, abandoned: str
) -> None:
    load(database_url, "spring", due(store, rows(3)))
    operations.loads.pause("spring", until=store.now() + timedelta(seconds=0.3))
    first = operations.loads.begin_cancel("spring")
    second = operations.loads.begin_cancel("spring")
    wait_until(lambda: store.now() > first.began + timedelta(seconds=0.4))
    for each, name in ((first, "first"), (second, "second")):
        if abandoned in (name, "both"):
            operations.abandon(each.operation_id)
    store.unpark()
    is_paused = abandoned != "both"
    assert operations.loads.get("spring").paused == is_paused
    assert Dispatcher(store, RecordingTransport()).dispatch_due().delivered == (0 if is_paused else 3)
    if is_paused:
        left = second if abandoned == "first" else first
        assert operations.run(left.operation_id).changed == 3
        assert operations.loads.paused() == []


def test_a_cancel_takes_messages_that_lie_near_each_other_in_one_step(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    others, near = rows(50, "other"), [row(f"m-{number * 7919 % 9000:05d}", number) for number in range(9000)]
    store.store_many(others)
    load(database_url, "spring", [*due(store, near[:1]), *near[1:]])
    begun = operations.loads.begin_cancel("spring")
    with opened(database_url) as other, other.transaction() as claiming:
        (claimed,) = claiming.fetch_due(other.now(), 1)
        step = store.advance_operation(begun.operation_id)
        assert step is not None
        is_near = store.engine.dialect.name == "postgresql"
        assert (step.state, step.changed > 1500) == (OperationState.RUNNING, is_near)
        steps = 1
        while step.after is not None:
            step = store.advance_operation(begun.operation_id)
            assert step is not None
            steps += 1
        assert (step.changed, step.held, list(step.held_ids)) == (8999, 1, [claimed.message_id])
        assert (steps <= 7) == is_near
    ended = operations.run(begun.operation_id)
    assert (ended.state, ended.changed, ended.held) == (OperationState.DONE, 9000, 0)
    found = operations.loads.get("spring")
    assert (found.cancelled, found.delivered, found.waiting, found.paused) == (9000, 0, 0, False)
    assert store.count() == 50


def test_a_load_of_which_nothing_waits_is_not_paused(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", rows(2))
    load(database_url, "done", due(store, rows(2, "d")))
    Dispatcher(store, RecordingTransport()).dispatch_due()
    begun = operations.loads.begin_cancel("spring")
    operations.abandon(begun.operation_id)
    operations.loads.pause("spring")  # two messages of it still wait
    operations.loads.resume("spring")
    operations.loads.cancel("spring")
    for load_id in ("done", "spring"):
        with pytest.raises(ConfigurationError, match=f"'{load_id}' is not paused, because none of its messages waits"):
            operations.loads.pause(load_id)
    assert operations.loads.paused() == []


def test_a_load_is_put_off_with_its_messages(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", rows(5))
    at = store.now() + HOUR
    assert operations.reschedule(SPRING, at=at).changed == 5
    found = operations.loads.get("spring")
    assert found.first_due == found.last_due == at


def test_messages_with_keys_belong_to_their_load(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    rule = KeyRule(OnKey.REPLACE)
    load(database_url, "spring", [row("a", key="1"), row("b", key="2"), row("c")], key_rule=rule)
    assert ids(operations, SPRING) == ["a", "b", "c"]
    load(database_url, "autumn", [row("d", key="2")], key_rule=rule)
    assert ids(operations, MessageFilter(load="autumn")) == ["d"]
    store.store_keyed(row("e", key="1"), rule)  # it takes the place of "a", in the load as well
    assert operations.loads.get("spring").replaced == 1
    assert operations.loads.cancel("spring").changed == 2


def test_messages_of_one_load_that_replace_each_other_are_replaced_ones(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    messages = [row(name, number, key="1") for number, name in enumerate("abc")]
    load(database_url, "spring", messages, key_rule=KeyRule(OnKey.REPLACE))
    assert ids(operations, SPRING) == ["c"]
    found = operations.loads.get("spring")
    assert (found.stored, found.waiting, found.replaced, found.delivered) == (3, 1, 2, 0)


@pytest.mark.parametrize("keys", ["12", "21", "34", "31"])
def test_messages_whose_ids_come_again_are_replaced_ones(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, keys: str
) -> None:
    rule = KeyRule(OnKey.REPLACE)
    load(database_url, "spring", [row("a", key="1"), row("b", 1, key="2"), row("c", 2)], key_rule=rule)
    new = [row("a", key=keys[0]), row("b", 1, key=keys[1])]
    load(database_url, "autumn", new, OnDuplicate.REPLACE, key_rule=rule, noted_as=replacing(Way.LOAD))
    found = operations.loads.get("spring")
    assert (found.waiting, found.replaced, found.cancelled, found.delivered) == (1, 2, 0, 0)
    assert ids(operations, MessageFilter(load="autumn")) == ["a", "b"]
    assert operations.loads.get("autumn").replaced == 0


def test_a_message_that_is_kept_stays_out_of_the_load(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    store.store_keyed(row("mine", key="1"), KeyRule())
    store.store(row("b"))
    messages = [row("a", key="1"), row("b", key="2"), row("c")]
    load(database_url, "spring", messages, OnDuplicate.IGNORE, key_rule=KeyRule(OnKey.KEEP))
    assert ids(operations, SPRING) == ["c"]


@pytest.mark.parametrize("on_expired", ["drop", "error-queue"])
def test_messages_that_are_too_late_are_expired_ones(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str, on_expired: str
) -> None:
    now = store.now()
    late = [replace(each, not_after=now - timedelta(seconds=60)) for each in due(store, rows(3), -120)]
    load(database_url, "spring", [*late, *due(store, rows(2, "ok"))])
    settings = DelayedDeliverySettings(on_expired=on_expired)
    Dispatcher(store, RecordingTransport(), settings).dispatch_due()
    found = operations.loads.get("spring")
    assert (found.expired, found.delivered, found.failed, found.waiting) == (3, 2, 0, 0)


def test_moved_messages_are_failed_ones(
    store: SqlDelayedMessageStore, operations: Operations, database_url: str
) -> None:
    load(database_url, "spring", due(store, rows(3)))
    transport = RecordingTransport({"billing": Outcome(OutcomeKind.UNROUTABLE, "no such queue")})
    Dispatcher(store, transport).dispatch_due()
    found = operations.loads.get("spring")
    assert (found.failed, found.delivered, found.waiting) == (3, 0, 0)
