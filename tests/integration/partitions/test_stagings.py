"""The staging of a load becomes a partition itself: other attempts, crashes and locks between the steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from delaystore.bulk.attempts import AttemptReport, promote
from delaystore.bulk.options import OnDuplicate
from delaystore.bulk.staging import LoadKey, StagedAttempt, Staging
from delaystore.errors import DuplicateMessageError, LoadLostError
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from tests.integration.loading import DUE, batch, row, rows, staged, staging_of
from tests.integration.partitions import ROWS
from tests.integration.sql_stores import execute, message, opened, query
from tests.servers.postgresql import PostgreSQL

ANNOUNCED = "SELECT l.virtualtransaction"
"""The first statement after the commit that announces a partition."""
FAMILY = (
    "SELECT CAST(CAST(inhrelid AS INTEGER) AS TEXT), c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid "
    "WHERE inhparent = CAST('sales_{parent}' AS REGCLASS)"
)


@contextmanager
def once_after(words: str, action: Callable[[], object], number: int = 1) -> Iterator[None]:
    """Do `action` after the first statement with these words, or another `number`; fail if there was none."""
    actions: list[Callable[[], object]] = [action, *[lambda: None] * (number - 1)]

    def executed(_connection: Any, _cursor: Any, statement: str, *_: object) -> None:
        if words in statement and actions:
            actions.pop()()

    event.listen(Engine, "after_cursor_execute", executed)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", executed)
    assert not actions


def begun(url: str, *messages: Any) -> tuple[Staging, list[StagedAttempt]]:
    """Stage the rows of a load by two attempts, without promoting it."""
    staging = staging_of(url)
    assert staging.begin(LoadKey("one")) is None
    first, second = rows(ROWS), [*rows(ROWS, "n"), *messages]
    return staging, [staged(staging, first), staged(staging, second)]


def staging_table(url: str) -> str:
    found = query(url, r"SELECT relname FROM pg_class WHERE relname ~ '^sales_delayed_load_[0-9a-f]{20}$'")
    return str(found[0][0])


def ids(store: SqlDelayedMessageStore) -> list[str]:
    return sorted(each.message_id for each in store.list(limit=1000).messages)


ALL = sorted(each.message_id for each in [*rows(ROWS), *rows(ROWS, "n")])


def test_the_table_of_staged_rows_is_the_partition(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    """So each row is written once, and a row says by its load that it is of it."""
    staging, attempts = begun(postgresql_url)
    table = query(postgresql_url, f"SELECT CAST('{staging_table(postgresql_url)}' AS REGCLASS)::OID::TEXT")[0][0]
    staging.promote(attempts, OnDuplicate.ERROR)
    ((attached, name),) = query(postgresql_url, FAMILY.format(parent="delayed"))
    assert attached == table
    assert name.startswith("sales_delayed_shelf_")
    assert query(postgresql_url, FAMILY.format(parent="delayed_shelves")) == [(attached, name)]
    assert ids(store) == ALL
    columns = "SELECT attname FROM pg_attribute WHERE attrelid = '{}'::REGCLASS AND attnum > 0 AND NOT attisdropped"
    of_live, of_partition = (query(postgresql_url, columns.format(each)) for each in ("sales_delayed", name))
    assert sorted(of_partition) == sorted(of_live)
    loads = "SELECT load_number = (SELECT number FROM sales_delayed_loads) FROM sales_delayed"
    assert set(query(postgresql_url, loads)) == {(True,)}
    assert store.defects() == []


def test_rows_of_a_losing_attempt_never_wait(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    staging, attempts = begun(postgresql_url)
    staged(staging, rows(ROWS, "lost"))
    staging.promote(attempts, OnDuplicate.ERROR)
    assert ids(store) == ALL


def test_rows_that_an_attempt_stages_after_the_announcement_never_wait(
    store: SqlDelayedMessageStore, postgresql_url: str
) -> None:
    staging, attempts = begun(postgresql_url)
    with once_after(ANNOUNCED, lambda: staged(staging, rows(ROWS, "lost"))):
        staging.promote(attempts, OnDuplicate.ERROR)
    assert ids(store) == ALL


def test_an_attempt_that_stages_during_the_attachment_finds_its_load_gone(
    store: SqlDelayedMessageStore, postgresql_url: str
) -> None:
    staging, attempts = begun(postgresql_url)
    with staging.attempt() as straggler:
        straggler.write(batch(rows(ROWS, "lost")))
        staging.promote(attempts, OnDuplicate.ERROR)
        with pytest.raises(LoadLostError):
            straggler.finish()
    assert ids(store) == ALL


def test_a_frozen_attempt_does_not_hold_the_load_up(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    """Its table stays locked, and the rows are inserted."""
    staging, attempts = begun(postgresql_url)
    with store.engine.connect() as frozen:
        frozen.execute(text(f"LOCK TABLE {staging_table(postgresql_url)} IN ROW EXCLUSIVE MODE"))
        assert staging.promote(attempts, OnDuplicate.ERROR).stored == len(ALL)
    assert ids(store) == ALL
    assert query(postgresql_url, FAMILY.format(parent="delayed")) == []


def test_duplicates_leave_the_staged_rows_as_they_are(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    store.store(row("m-00003"))
    staging, attempts = begun(postgresql_url)
    with pytest.raises(DuplicateMessageError, match="m-00003"):
        staging.promote(attempts, OnDuplicate.ERROR)
    assert query(postgresql_url, FAMILY.format(parent="delayed_shelves")) == []
    store.cancel("m-00003")
    assert staging.promote(attempts, OnDuplicate.ERROR).stored == len(ALL)
    assert ids(store) == ALL


def test_the_staging_of_a_dead_process_keeps_no_sender_waiting(
    store: SqlDelayedMessageStore, postgresql_url: str
) -> None:
    """A clean-up ends the announcement. The rows stay for another try, or until a load's clean-up."""
    staging, attempts = begun(postgresql_url)
    execute(postgresql_url, f"ALTER TABLE {staging_table(postgresql_url)} INHERIT sales_delayed_shelves")
    store.clean_up()
    assert query(postgresql_url, FAMILY.format(parent="delayed_shelves")) == []
    assert staging.promote(attempts, OnDuplicate.ERROR).stored == len(ALL)
    assert ids(store) == ALL


def test_a_clean_up_leaves_the_rows_of_a_staging_that_is_read(
    store: SqlDelayedMessageStore, postgresql_url: str
) -> None:
    """Its announcement cannot end while a backup reads it."""
    staging, attempts = begun(postgresql_url)
    execute(postgresql_url, f"ALTER TABLE {staging_table(postgresql_url)} INHERIT sales_delayed_shelves")
    with store.engine.connect() as backup:
        backup.execute(text(f"LOCK TABLE {staging_table(postgresql_url)} IN ACCESS SHARE MODE"))
        store.clean_up()
    assert staging.promote(attempts, OnDuplicate.ERROR).stored == len(ALL)
    assert ids(store) == ALL


@pytest.mark.parametrize("key", [None, "k"])
def test_a_staged_row_that_vanishes_at_last_is_noticed(
    store: SqlDelayedMessageStore, postgresql_url: str, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """As one that an operator deletes: after the rows were counted, and before they are stored."""
    if key is None:
        monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", PartitionLimits())
    staging, attempts = begun(postgresql_url, row("keyed", key=key))
    vanished = f"DELETE FROM {staging_table(postgresql_url)} WHERE message_id = 'm-00000'"
    counted = "AS min_1, min("
    with (
        once_after(counted, lambda: execute(postgresql_url, vanished), 1 if key is None else 2),
        pytest.raises(LoadLostError, match="rows of the load 'one' are left"),
    ):
        staging.promote(attempts, OnDuplicate.ERROR)
    assert ids(store) == []


@pytest.mark.parametrize(
    "words", ["ADD PRIMARY KEY", "ANALYZE", ANNOUNCED, "SELECT s.message_id", "INHERIT", "RENAME TO"]
)
def test_a_load_outlives_a_crash_of_the_database_at_any_step(private_postgresql: PostgreSQL, words: str) -> None:
    """The staging has a write-ahead log: it outlives the crash, and its rows are inserted then."""
    url = private_postgresql.create_database()
    staging, attempts = begun(url)
    reports = [AttemptReport(attempt) for attempt in attempts]

    def crash() -> None:
        private_postgresql.kill()
        private_postgresql.start()

    with once_after(words, crash):
        assert promote(reports, staging, None, OnDuplicate.ERROR).stored == len(ALL)
    assert promote(reports, staging, None, OnDuplicate.ERROR).stored == len(ALL)
    with opened(url) as store:
        assert ids(store) == ALL


def test_a_column_that_was_added_meanwhile_does_no_harm(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    staging, attempts = begun(postgresql_url)
    execute(postgresql_url, "ALTER TABLE sales_delayed ADD COLUMN later TEXT")
    assert staging.promote(attempts, OnDuplicate.ERROR).stored == len(ALL)
    assert ids(store) == ALL


def test_keyed_messages_wait_in_the_table_itself(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    staging, attempts = begun(postgresql_url, row("keyed", key="k"))
    assert staging.promote(attempts, OnDuplicate.ERROR).stored == len(ALL) + 1
    assert store.message_id_of("k") == "keyed"
    assert query(postgresql_url, "SELECT message_id FROM ONLY sales_delayed") == [("keyed",)]


def test_neighbours_in_due_time_are_neighbours_on_disk(store: SqlDelayedMessageStore, postgresql_url: str) -> None:
    staging = staging_of(postgresql_url)
    staging.begin(LoadKey("one"))
    messages = [message(DUE, seconds, f"i{-seconds + 999:03d}") for seconds in range(3 * ROWS)]
    staging.promote([staged(staging, messages[::2] + messages[1::2])], OnDuplicate.ERROR)
    found = query(postgresql_url, "SELECT next_attempt FROM sales_delayed ORDER BY ctid")
    assert found == sorted(found)


@pytest.mark.parametrize("many", [False, True])
def test_many_rows_get_a_partition_beside_a_small_table(
    store: SqlDelayedMessageStore, postgresql_url: str, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    limits = replace(store.partition_limits, smallest_table=2**30, many_rows=2 * ROWS if many else 2 * ROWS + 1)
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", limits)
    staging, attempts = begun(postgresql_url)
    staging.promote(attempts, OnDuplicate.ERROR)
    assert len(query(postgresql_url, FAMILY.format(parent="delayed"))) == int(many)
    assert ids(store) == ALL
