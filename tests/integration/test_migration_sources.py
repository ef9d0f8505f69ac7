"""Rows of SQL tables are hidden, staged, completed and given back, on each database."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest

from delaystore.errors import MigrationError, StoreSetupError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import (
    BatchStatus,
    MigrationRow,
    MigrationRun,
    MigrationSource,
    Rejected,
    RunCounts,
    RunParameters,
    RunStatus,
    checksum,
)
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.history import HistoryFilter
from delaystore.stores.records import Ending
from tests.integration.migrating import (
    AWKWARD,
    START,
    AwkwardLayout,
    begun,
    count,
    dump,
    make_awkward_table,
    source_of,
    tables_of,
)
from tests.integration.sql_stores import execute, message, opened

HOSTILE = {
    "nested": {"list": [1, None, {"$bytes": "no tag"}, b"\0\xff"], "": "\0"},
    "decimal": Decimal("1.50"),
    "when": datetime(2001, 2, 3, 4, 5, 6, 789, tzinfo=UTC),
    "unicode 😀 %s :x": "'; DROP TABLE sales_delayed; --",
}


@pytest.fixture
def source(database_url: str, store: SqlDelayedMessageStore) -> Iterator[MigrationSource]:
    with source_of(database_url) as source:
        yield source


def stored(store: SqlDelayedMessageStore, number: int = 25) -> list[DelayedMessage]:
    """Messages due from START on, in its order, with everything a message can have."""
    messages = [
        message(
            START,
            i,
            message_id=f"m{number - i:03d} ü",
            destination=f"queue{i % 3}",
            headers=HOSTILE if i % 2 else {},
            properties={"correlation_id": "c", "priority": 3, "timestamp": START} if i % 2 else {},
            body=bytes([i]) * i,
            failure_count=i % 4,
            next_attempt=START + timedelta(days=2, seconds=i, microseconds=123) if i % 4 == 3 else None,
            key=f"key {i}" if i % 5 == 0 else None,
        )
        for i in range(number)
    ]
    store.store_many(messages)
    return messages


def rows_of(source: MigrationSource, run: MigrationRun) -> list[MigrationRow | Rejected]:
    return [row for batch in source.batches(run) for row in source.stage(run, batch)]


def move(source: MigrationSource, run: MigrationRun, batches: int = 1000) -> None:
    for batch in source.batches(run, BatchStatus.PENDING)[:batches]:
        source.stage(run, batch)
        source.complete(run, batch, [])


def test_everything_a_message_has_comes_out_in_batches(
    source: MigrationSource, store: SqlDelayedMessageStore, database_url: str
) -> None:
    messages = stored(store)
    run = begun(source, batch_size=10)
    assert store.count() == 0
    assert [(batch.number, batch.status, batch.count) for batch in source.batches(run)] == [
        (1, BatchStatus.PENDING, 10),
        (2, BatchStatus.PENDING, 10),
        (3, BatchStatus.PENDING, 5),
    ]
    expected = {m.message_id: m for m in messages}
    rows = rows_of(source, run)
    assert {row.row_id: row.message for row in rows if isinstance(row, MigrationRow)} == expected
    first = [row.message.due_time for row in source.stage(run, source.batches(run)[0]) if isinstance(row, MigrationRow)]
    assert first == sorted(first)


def test_what_is_parked_comes_out_to_be_sent_when_it_is_due(
    source: MigrationSource, store: SqlDelayedMessageStore
) -> None:
    sent = [message(store.now(), seconds, message_id=f"m{seconds}") for seconds in (-5, 5)]
    store.store_many(sent)
    store.pause("billing", by="ada")
    assert store.park(store.now() + timedelta(seconds=60)) == 2
    run = begun(source)
    assert {row.message.message_id: row.message for row in rows_of(source, run) if isinstance(row, MigrationRow)} == {
        each.message_id: each for each in sent
    }


def test_a_run_is_remembered_as_it_was_begun(source: MigrationSource, database_url: str) -> None:
    cutoff = START + timedelta(microseconds=7)
    assert source.run("sales") is None
    run = source.begin(RunParameters(endpoint="sales", target="über 'x'", cutoff=cutoff, batch_size=7))
    with source_of(database_url) as other:
        assert other.run("sales") == run
    done = source.set_status(run, RunStatus.COMPLETED)
    assert done.completed is not None
    with source_of(database_url) as other:
        assert other.run("sales") == done


def test_the_proof_is_over_what_was_moved(source: MigrationSource, store: SqlDelayedMessageStore) -> None:
    messages = {m.message_id: m for m in stored(store)}
    run = begun(source, batch_size=10)
    first, second, _ = source.batches(run)
    moved = [row.row_id for row in source.stage(run, first)]
    source.complete(run, first, [])
    rows = source.stage(run, second)
    rejected = [Rejected(rows[3].row_id, "no such queue\0\ud800"), Rejected(rows[5].row_id, "")]
    source.complete(run, second, rejected)
    moved += [row.row_id for row in rows if row.row_id not in (rows[3].row_id, rows[5].row_id)]
    assert source.counts(run) == RunCounts(prepared=25, pending=5, moved=18, rejected=2)
    assert sorted(id_ for page in source.moved(run) for id_, _, _ in page) == sorted(moved)
    assert source.moved_checksum(run) == checksum(
        (id_, messages[id_].destination, messages[id_].due_time) for id_ in moved
    )
    reasons = {rejection.row_id: rejection.reason for rejection in source.rejections(run, 10)}
    assert reasons == {rows[3].row_id: "no such queue\\0\\ud800", rows[5].row_id: "no reason was given"}
    assert len(source.rejections(run, 1)) == 1


def test_what_has_not_moved_goes_back_bit_for_bit(
    source: MigrationSource, store: SqlDelayedMessageStore, database_url: str
) -> None:
    stored(store)
    execute(database_url, "UPDATE sales_delayed SET headers = '{broken', properties = '' WHERE failure_count = 1")
    before = dump(database_url, "sales_delayed")
    run = begun(source, batch_size=4)
    move(source, run, batches=2)
    source.stage(run, source.batches(run, BatchStatus.PENDING)[0])
    assert dump(database_url, "sales_delayed") == []
    returned = list(source.give_back(run, rejected=True))
    assert returned == [4, 4, 4, 4, 1]
    moved = {id_ for page in source.moved(run) for id_, _, _ in page}
    key = (lambda row: row[0].decode()) if isinstance(before[0][0], bytes) else (lambda row: row[0])
    assert dump(database_url, "sales_delayed") == [row for row in before if key(row) not in moved]
    assert len(moved) == 8
    assert source.counts(run) == RunCounts(prepared=25, moved=8, returned=17)
    assert list(source.give_back(run, rejected=True)) == []


@pytest.mark.long_runs("mariadb")
@pytest.mark.parametrize("rejected", [False, True])
def test_rejected_rows_go_back_only_when_told(
    source: MigrationSource, store: SqlDelayedMessageStore, database_url: str, rejected: bool
) -> None:
    stored(store, 6)
    before = dump(database_url, "sales_delayed")
    run = begun(source, batch_size=3)
    batch = source.batches(run)[0]
    source.complete(run, batch, [Rejected(row.row_id, "refused") for row in source.stage(run, batch)])
    assert sum(source.give_back(run, rejected=rejected)) == (6 if rejected else 3)
    assert (dump(database_url, "sales_delayed") == before) == rejected
    left = RunCounts(prepared=6, returned=6) if rejected else RunCounts(prepared=6, returned=3, rejected=3)
    assert source.counts(run) == left


def test_a_message_stored_anew_is_not_overwritten_by_the_one_that_goes_back(
    source: MigrationSource, store: SqlDelayedMessageStore, database_url: str
) -> None:
    messages = stored(store, 5)
    run = begun(source)
    store.store(message(START, 99, message_id=messages[2].message_id, body=b"new"))
    assert list(source.give_back(run, rejected=False)) == [4]
    assert store.count() == 5
    assert store.get(messages[2].message_id).body == b"new"  # type: ignore[union-attr] # it is there
    assert source.counts(run) == RunCounts(prepared=5, returned=4, rejected=1)
    (rejection,) = source.rejections(run, 10)
    assert rejection == Rejected(messages[2].message_id, "a row of the same id waits in sales_delayed again")
    store.cancel(messages[2].message_id)
    assert list(source.give_back(run, rejected=True)) == [1]
    assert store.get(messages[2].message_id) == messages[2]


def test_the_cut_off_keeps_what_is_due_sooner(source: MigrationSource, store: SqlDelayedMessageStore) -> None:
    messages = stored(store)
    cutoff = START + timedelta(seconds=20)
    preview = source.waiting("sales", cutoff)
    assert (preview.count, preview.staying) == (5, 20)
    assert (preview.earliest, preview.latest) == (messages[20].due_time, messages[24].due_time)
    assert preview.destinations == {"queue0": 2, "queue1": 1, "queue2": 2}
    assert source.late("sales", messages[22].due_time) == 2
    run = begun(source, cutoff=cutoff)
    assert {row.row_id for row in rows_of(source, run)} == {m.message_id for m in messages[20:]}
    assert store.count() == 20


def test_nothing_to_move_is_a_run_without_batches(source: MigrationSource) -> None:
    preview = source.waiting("sales", None)
    assert (preview.count, preview.earliest, preview.latest, preview.destinations) == (0, None, None, {})
    run = begun(source)
    assert source.batches(run) == []
    assert source.counts(run) == RunCounts()
    assert source.moved_checksum(run) == checksum([])


def test_a_phase_follows_the_other_and_each_is_cleaned_up_by_itself(
    source: MigrationSource, store: SqlDelayedMessageStore, database_url: str
) -> None:
    messages = stored(store)
    far = begun(source, cutoff=START + timedelta(seconds=15), batch_size=4)
    move(source, far)
    far = source.set_status(far, RunStatus.COMPLETED)
    near = begun(source, batch_size=4)
    move(source, near)
    near = source.set_status(near, RunStatus.COMPLETED)
    assert (source.counts(far).moved, source.counts(near).moved) == (10, 15)
    assert source.run("sales") == near
    source.clean_up(near)
    assert source.run("sales") == far
    assert source.moved_checksum(far) == checksum((m.message_id, m.destination, m.due_time) for m in messages[15:])
    source.clean_up(far)
    assert source.run("sales") is None
    assert tables_of(database_url) == {"sales_delayed", "sales_delayed_loads", "sales_delayed_version"}


def test_runs_that_kept_no_row_are_forgotten_with_the_run_that_is_cleaned_up(
    source: MigrationSource, store: SqlDelayedMessageStore, database_url: str
) -> None:
    def completed(**parameters: Any) -> MigrationRun:
        run = begun(source, **parameters)
        move(source, run)
        return source.set_status(run, RunStatus.COMPLETED)

    def dry_run() -> None:
        run = begun(source)
        list(source.give_back(run, rejected=True))
        source.set_status(run, RunStatus.ABORTED)

    stored(store)
    dry_run()
    far = completed(cutoff=START + timedelta(seconds=15))
    dry_run()
    near = completed()
    source.clean_up(near)
    assert source.run("sales") == far
    source.clean_up(far)
    assert source.run("sales") is None
    assert tables_of(database_url) == {"sales_delayed", "sales_delayed_loads", "sales_delayed_version"}


def test_nothing_is_cleaned_up_while_rows_wait_in_the_side_table(
    source: MigrationSource, store: SqlDelayedMessageStore, database_url: str
) -> None:
    stored(store, 9)
    run = begun(source, batch_size=3)
    move(source, run, batches=2)
    with pytest.raises(MigrationError, match=r"3 rows of the run .* have not moved; resume or abort it first"):
        source.clean_up(run)
    assert count(database_url, "sales_delayed_migrating") == 9


def test_a_batch_is_completed_once_and_only_when_staged(source: MigrationSource, store: SqlDelayedMessageStore) -> None:
    stored(store, 3)
    run = begun(source)
    (batch,) = source.batches(run)
    with pytest.raises(MigrationError, match="not staged"):
        source.complete(run, batch, [])
    source.stage(run, batch)
    with pytest.raises(MigrationError, match="'unheard of' is not in batch 1"):
        source.complete(run, batch, [Rejected("unheard of", "why")])
    assert [found.status for found in source.batches(run)] == [BatchStatus.STAGED]
    source.complete(run, batch, [])
    with pytest.raises(MigrationError, match="completed already"):
        source.stage(run, batch)


def test_a_row_that_cannot_be_decoded_harms_itself_alone(
    source: MigrationSource, store: SqlDelayedMessageStore, database_url: str
) -> None:
    messages = stored(store, 9)
    broken = messages[4].message_id
    execute(database_url, "UPDATE sales_delayed SET headers = '{broken' WHERE due_time = (SELECT due_time FROM "
            "(SELECT due_time FROM sales_delayed ORDER BY due_time LIMIT 1 OFFSET 4) AS fifth)")  # fmt: skip
    rows = rows_of(source, begun(source))
    (rejected,) = [row for row in rows if isinstance(row, Rejected)]
    assert rejected.row_id == broken
    assert "cannot be decoded" in rejected.reason
    assert [row.message for row in rows if isinstance(row, MigrationRow)] == messages[:4] + messages[5:]


def test_a_row_of_text_that_is_no_utf8_harms_itself_alone(sqlite_url: str) -> None:
    with opened(sqlite_url) as store, source_of(sqlite_url) as source:
        messages = stored(store, 9)
        broken = "UPDATE sales_delayed SET headers = CAST(X'7bff' AS TEXT) WHERE body = X'04040404'"
        execute(sqlite_url, broken)
        rows = rows_of(source, begun(source))
        (rejected,) = [row for row in rows if isinstance(row, Rejected)]
        assert rejected.row_id == messages[4].message_id
        assert "cannot be decoded" in rejected.reason
        assert len(rows) == 9


def test_a_table_of_somebody_elses_comes_back_bit_for_bit(database_url: str) -> None:
    make_awkward_table(database_url, 40)
    before = dump(database_url, AWKWARD)
    with source_of(database_url, AwkwardLayout()) as source, source.lock(AWKWARD, "me"):
        assert source.check(AWKWARD) == []
        assert source.endpoints() == [AWKWARD]
        preview = source.waiting(AWKWARD, None)
        assert preview.destinations == {"Büro": 14, "a%s 'b'": 13, "büro": 13}
        assert preview.earliest == START + timedelta(microseconds=1)
        run = begun(source, AWKWARD, batch_size=16)
        assert dump(database_url, AWKWARD) == []
        first = source.batches(run)[0]
        rejected = [row for row in source.stage(run, first) if isinstance(row, Rejected)]
        assert {row.reason for row in rejected} == {"it has no body"}
        source.complete(run, first, [*rejected])
        times = [
            row.message.due_time for row in source.stage(run, source.batches(run)[1]) if isinstance(row, MigrationRow)
        ]
        assert times == sorted(times)
        assert times[0] > START
        moved = {id_ for page in source.moved(run) for id_, _, _ in page}
        assert sum(source.give_back(run, rejected=True)) == 40 - len(moved)
        assert dump(database_url, AWKWARD) == [row for row in before if str(row[0]) not in moved]
        source.clean_up(run)


def test_a_cut_off_within_one_instant_leaves_none_out(database_url: str, store: SqlDelayedMessageStore) -> None:
    store.store_many(message(START, message_id=f"same{i:03d}") for i in range(50))
    with source_of(database_url) as source:
        run = begun(source, batch_size=7, cutoff=START)
        assert source.counts(run).prepared == 50
        assert [batch.count for batch in source.batches(run)] == [7] * 7 + [1]


def test_a_missing_table_is_named_with_those_that_are_there(source: MigrationSource) -> None:
    (problem,) = source.check("sails")
    assert problem.fatal
    assert problem.text == "there is no table 'sails_delayed' for the endpoint 'sails'; endpoints found here: sales"
    with pytest.raises(StoreSetupError, match="endpoints found here: sales"):
        source.waiting("sails", None)


def test_no_run_begins_while_another_is_under_way(source: MigrationSource) -> None:
    run = begun(source)
    with pytest.raises(MigrationError, match=rf"the run {run.run_id} of 'sales' is running; resume or abort it first"):
        source.begin(RunParameters(endpoint="sales", target="another"))


def test_rows_of_an_unknown_run_stop_the_next_one(
    source: MigrationSource, store: SqlDelayedMessageStore, database_url: str
) -> None:
    stored(store, 3)
    begun(source)
    execute(database_url, "DELETE FROM sales_delayed_migration_batches", "DELETE FROM sales_delayed_migration_run")
    with pytest.raises(MigrationError, match="'sales_delayed_migrating' holds rows of a run"):
        source.begin(RunParameters(endpoint="sales", target="another"))
    assert count(database_url, "sales_delayed_migrating") == 3


def test_a_source_that_was_altered_since_is_refused(source: MigrationSource, database_url: str) -> None:
    begun(source)
    execute(database_url, "ALTER TABLE sales_delayed ADD COLUMN more integer")
    with source_of(database_url) as other:
        (problem,) = other.check("sales")
        assert "of another layout (columns more)" in problem.text
        with pytest.raises(MigrationError, match="of another layout"):
            other.run("sales")


def test_a_table_without_transactions_is_told(mariadb_url: str) -> None:
    execute(mariadb_url, "CREATE TABLE odd_delayed (message_id varchar(9) PRIMARY KEY) ENGINE=MyISAM")
    with source_of(mariadb_url) as source:
        texts = " ".join(problem.text for problem in source.check("odd"))
    assert "the table 'odd_delayed' is kept by MyISAM, which has no transactions" in texts


def test_a_table_of_another_kind_is_told(source: MigrationSource, database_url: str) -> None:
    execute(database_url, "CREATE TABLE odd_delayed (message_id varchar(9), due_time integer, migration_batch integer)")
    texts = " ".join(problem.text for problem in source.check("odd"))
    assert "has no column 'destination' (the message's destination); is it delaystore's?" in texts
    assert "has a column 'migration_batch'" in texts
    assert "'message_id' of 'odd_delayed' is no primary key" in texts


def test_what_would_move_is_read_page_by_page_and_stays(
    database_url: str, store: SqlDelayedMessageStore, source: MigrationSource
) -> None:
    store.store_many(message(START, number // 3, headers=HOSTILE) for number in range(2401))
    execute(
        database_url,
        "UPDATE sales_delayed SET headers = 'no JSON' WHERE message_id = (SELECT * FROM "
        "(SELECT min(message_id) FROM sales_delayed) AS first)",
    )
    before = dump(database_url, "sales_delayed")
    pages = list(source.would_move("sales", None))
    rows = [row for page in pages for row in page]
    assert {row.row_id for row in rows if isinstance(row, MigrationRow)} | {
        row.row_id for row in rows if isinstance(row, Rejected)
    } == {one.message_id for one in store.list(limit=3000).messages}
    assert (len(pages), len(rows)) == (3, 2401)
    assert [type(row) for row in rows].count(Rejected) == 1
    late = [row for page in source.would_move("sales", START + timedelta(seconds=800)) for row in page]
    assert len(late) == 1
    assert dump(database_url, "sales_delayed") == before


def test_messages_that_have_moved_have_entries_in_the_history(
    source: MigrationSource, store: SqlDelayedMessageStore
) -> None:
    store.keep_history(timedelta(days=30))
    messages = {each.message_id: each for each in stored(store)}
    run = begun(source, batch_size=10)
    first, second, third = source.batches(run)
    moved = [row.row_id for row in source.stage(run, first)]
    source.complete(run, first, [Rejected(moved[0], "no queue")])
    source.stage(run, second)
    assert len(store.history(HistoryFilter()).entries) == 9, "the second batch is not completed"
    source.complete(run, second, [])
    assert sum(source.give_back(run, rejected=True)) == 6 == third.count + 1
    entries = store.history(HistoryFilter()).entries
    assert {entry.message_id for entry in entries} == messages.keys() - set(store.message_ids("", 100))
    assert len(entries) == 19
    for entry in entries:
        message = messages[entry.message_id]
        assert (entry.ending, entry.destination, entry.due_time, entry.key, entry.attempts) == (
            Ending.MIGRATED,
            message.destination,
            message.due_time,
            message.key,
            message.failure_count,
        )
        assert entry.body_hash == sha256(message.body).hexdigest()
    source.clean_up(run)
    assert len(store.history(HistoryFilter()).entries) == 19


def test_without_a_history_a_migration_makes_no_entries(source: MigrationSource, store: SqlDelayedMessageStore) -> None:
    stored(store)
    run = begun(source)
    move(source, run)
    assert store.history(HistoryFilter()).entries == []


def test_a_completion_that_fails_makes_no_entries(source: MigrationSource, store: SqlDelayedMessageStore) -> None:
    store.keep_history(timedelta(days=30))
    stored(store)
    run = begun(source)
    (batch,) = source.batches(run)
    source.stage(run, batch)
    with pytest.raises(MigrationError, match="is not in batch"):
        source.complete(run, batch, [Rejected("another", "reason")])
    assert store.history(HistoryFilter()).entries == []
    source.complete(run, batch, [])
    with pytest.raises(MigrationError, match="is not staged"):
        source.complete(run, batch, [])
    assert len(store.history(HistoryFilter()).entries) == 25
