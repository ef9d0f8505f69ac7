"""Loads as units, on each database: counts, cancel, pause and resume, and what these do not reach."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from delaystore import DelayedDelivery, DelayedDeliverySettings, MessageFilter
from delaystore.bulk.options import OnDuplicate, StoreOptions, replacing
from delaystore.bulk.staging import LoadKey, cleanup
from delaystore.dispatcher import Dispatcher
from delaystore.errors import ConfigurationError, InvalidMessageError, LoadLostError
from delaystore.message import DelayedMessage, KeyRule, OnKey
from delaystore.operations import Operations
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.records import LoadPhase, OperationState, Way, name_of_load
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from delaystore.testing import RecordingTransport
from delaystore.transports.abc import Outcome, OutcomeKind
from tests.dispatching import wait_until
from tests.integration.loading import end_lease, load, row, rows, staged, staging_of
from tests.integration.sql_stores import execute, query, url_for

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
    assert operations.preview(MessageFilter(load="winter")).count == 0
    found = operations.loads.get("spring")
    assert (found.state, found.stored, found.waiting, found.delivered) == (LoadPhase.WAITING, 25, 25, 0)
    assert (found.first_due, found.last_due) == (row("m", 0).due_time, row("m", 24).due_time)
    assert [each.load_id for each in operations.loads.list()] == ["autumn", "spring"]
    with pytest.raises(ConfigurationError, match="there is no load 'winter'"):
        operations.loads.get("winter")


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
