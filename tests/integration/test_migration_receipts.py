"""A migration into a SQL store is killed between the target's commit and the source's, and what it moved is touched."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from delaystore.errors import MigrationError, MigrationLockedError
from delaystore.message import DelayedMessage
from delaystore.migrations.abc import (
    BatchStatus,
    MigrationBatch,
    MigrationRow,
    MigrationSource,
    MigrationTarget,
    Report,
    RunParameters,
)
from delaystore.migrations.runner import RunSettings, abort, clean_up, run, verify
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.migrations.targets._stores import SqlStoreTarget
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from tests.integration.cli import PATIENCE, CommandLine
from tests.integration.killed_migration import BATCH_SIZE
from tests.integration.migrating import tables_of
from tests.integration.sql_stores import connected, execute
from tests.servers import PostgreSQLDatabases

pytestmark = pytest.mark.long_runs("mariadb")

COUNT = 45
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
LATER = SOON + timedelta(days=9)


@pytest.fixture(params=["the same database", "a file"])
def source_url(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> str:
    """Where the messages are: each has a destination of its own."""
    return filled_table(database_url) if request.param == "the same database" else filled_file(tmp_path)


def filled_table(database_url: str) -> str:
    """The URL of another table, in the same database."""
    with closing(SqlDelayedMessageStore(database_url, table="old_delayed")) as store:
        store.initialize("old", TransactionMode.NONE)
        store.setup_infrastructure()
        store.store_many(
            DelayedMessage(message_id=f"m{n}", destination=f"q{n}", due_time=due(n), body=b"pay") for n in range(COUNT)
        )
    return make_url(database_url).update_query_dict({"table": "old_delayed"}).render_as_string(hide_password=False)


def filled_file(folder: Path) -> str:
    path = folder / "export.jsonl"
    rows = (
        {"message_id": f"m{n}", "destination": f"q{n}", "due_time": str(due(n)), "body": "pay"} for n in range(COUNT)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"file://{path}"


def due(number: int) -> datetime:
    return SOON + timedelta(seconds=number)


def killed(source: str, target: str, *, rate: float = 0, parts: int = 2) -> None:
    """A run that dies once the target has committed so many parts of batches."""
    arguments = [sys.executable, "-m", "tests.integration.killed_migration", source, target, str(rate), str(parts)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == -signal.SIGKILL, ended


@contextmanager
def ends(source: str, target: str) -> Iterator[tuple[MigrationSource, MigrationTarget]]:
    """Both, once the lock of the killed process is free."""
    with closing(open_source(source)) as from_source, closing(open_target(target, "sales")) as to_target:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with from_source.lock("sales", "a test"):
                    break
            except MigrationLockedError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield from_source, to_target


@contextmanager
def target_store(url: str) -> Iterator[SqlDelayedMessageStore]:
    with closing(SqlDelayedMessageStore(url)) as store:
        store.initialize("sales", TransactionMode.NONE)
        yield store


def touch(source: MigrationSource, target: str) -> tuple[str, str, str]:
    """Cancel, reschedule and dispatch a message each, of those in flight; which they were."""
    begun = source.run("sales")
    assert begun is not None
    with target_store(target) as store:
        found = (
            row.message.message_id
            for batch in source.batches(begun, BatchStatus.STAGED)
            for row in source.stage(begun, batch)
            if isinstance(row, MigrationRow) and store.get(row.message.message_id)
        )
        cancelled, moved, dispatched = (next(found) for _ in range(3))
        assert store.cancel(cancelled) is ManagementOutcome.DONE
        assert store.reschedule(moved, LATER) is ManagementOutcome.DONE
        with store.transaction() as tx:
            (first,) = (one for one in tx.fetch_due(LATER, COUNT) if one.message_id == dispatched)
            assert tx.remove(first)
    return cancelled, moved, dispatched


def assert_each_once(
    source: MigrationSource, target: str, cancelled: str, rescheduled: str, dispatched: str
) -> Sequence[str]:
    """Each message is in one place, the two that have left in none. Returns the ids in the source."""
    there = source.waiting("sales", None).destinations
    back = [destination.replace("q", "m") for destination, count in there.items() for _ in range(count)]
    with target_store(target) as store:
        waiting = {one.message_id: one.due_time for one in store.list(limit=1000).messages}
    everything = Counter(f"m{number}" for number in range(COUNT))
    assert Counter([*back, *waiting, cancelled, dispatched]) == everything
    assert waiting[rescheduled] == LATER
    return back


def receipts(url: str) -> set[str]:
    return {name for name in tables_of(url) if "_received_" in name}


@pytest.mark.long_runs("mariadb", "sqlite")
def test_a_resumed_run_sends_nothing_again_whatever_became_of_it(source_url: str, database_url: str) -> None:
    killed(source_url, database_url)
    with ends(source_url, database_url) as (source, target):
        touched = touch(source, database_url)
        assert "are at the target already" in verify(source, target, "sales").remarks[0]
        report = run(source, target, "sales", RunSettings(batch_size=BATCH_SIZE))
        assert (report.counts.moved, report.counts.rejected) == (COUNT, 0)
        assert report.extra["sent_again"] == 0
        assert report.sent < COUNT
        assert_each_once(source, database_url, *touched)
        assert receipts(database_url)
        clean_up(source, target, "sales", force=True)  # a message was rescheduled
        assert not receipts(database_url)


@pytest.mark.long_runs("mariadb", "sqlite")
def test_an_abort_leaves_at_the_target_what_has_arrived_there(source_url: str, database_url: str) -> None:
    killed(source_url, database_url)
    with ends(source_url, database_url) as (source, target):
        touched = touch(source, database_url)
        report = abort(source, "sales", target=target)
        back = assert_each_once(source, database_url, *touched)
        assert report.counts.moved == COUNT - len(back) >= BATCH_SIZE
        assert (report.counts.pending, report.counts.rejected) == (0, 0)
        assert report.extra["in_flight"] == 0
        assert report.extra["received"] >= BATCH_SIZE
        assert not receipts(database_url)


@pytest.mark.long_runs("aborted")
@pytest.mark.parametrize("goes_on", [True, False], ids=["resumed", "aborted"])
def test_of_a_batch_that_was_sent_in_part_the_rest_is_sent_or_goes_back(
    tmp_path: Path, postgresql_url: str, goes_on: bool
) -> None:
    source_url = filled_file(tmp_path)
    killed(source_url, postgresql_url, rate=9, parts=4)  # a message at a time
    with ends(source_url, postgresql_url) as (source, target):
        touched = touch(source, postgresql_url)
        if goes_on:
            assert run(source, target, "sales", RunSettings(batch_size=BATCH_SIZE)).sent == COUNT - 4
        else:
            assert abort(source, "sales", target=target).extra["received"] == 4
        assert len(assert_each_once(source, postgresql_url, *touched)) == (0 if goes_on else COUNT - 4)


@pytest.mark.long_runs
def test_a_row_that_the_target_refused_is_refused_again_and_no_other_harmed(database_url: str, tmp_path: Path) -> None:
    source_url = filled_file(tmp_path)
    with target_store(database_url) as store:
        store.setup_infrastructure()
        store.store(DelayedMessage(message_id="m3", destination="elsewhere", due_time=LATER, body=b"another"))
    killed(source_url, database_url, parts=5)
    with ends(source_url, database_url) as (source, target):
        report = run(source, target, "sales", RunSettings(batch_size=BATCH_SIZE, allow_rejects=True))
        assert [one.reason for one in report.rejections] == ["another message with the id 'm3' waits at the target"]
        assert (report.counts.moved, report.counts.rejected) == (COUNT - 1, 1)
        given: Report = abort(source, "sales", target=target)
        assert given.extra["given_back"] == 1


def test_an_abort_asks_the_target_unless_told_that_it_is_lost(
    run: CommandLine, tmp_path: Path, sqlite_url: str
) -> None:
    source_url = filled_file(tmp_path)
    killed(source_url, sqlite_url, rate=9, parts=4)
    asked = ["migrate", "abort", "--yes", "--from", source_url, "--endpoint", "sales"]
    assert "10 messages of 'sales' were being sent when the run stopped" in run.refused(*asked)
    with (
        closing(open_source(source_url)) as source,
        closing(open_target("noop:", "sales")) as another,
        pytest.raises(MigrationError, match="not to noop; name the earlier target"),
    ):
        abort(source, "sales", target=another)
    lost = run(*asked, "--target-lost")
    assert "10 messages were being sent when the run stopped: given back, they may be at the target as well" in lost.err


def test_a_clean_up_ends_the_receipts_of_earlier_runs_that_it_forgets(
    run: CommandLine, tmp_path: Path, sqlite_url: str
) -> None:
    source_url = filled_file(tmp_path)
    killed(source_url, sqlite_url, rate=9, parts=4)
    ends = ["--from", source_url, "--to", sqlite_url, "--endpoint", "sales"]
    assert run("migrate", "abort", *ends, "--yes", "--target-lost").code == 0
    assert run("migrate", "run", *ends, "--yes").code == 0
    assert len(receipts(sqlite_url)) == 2
    assert run("migrate", "cleanup", *ends, "--yes").code == 0
    assert not receipts(sqlite_url)


def test_a_dry_run_that_was_killed_is_aborted_without_its_target(run: CommandLine, sqlite_url: str) -> None:
    source_url = filled_table(sqlite_url)
    with closing(open_source(source_url)) as source:
        begun = source.begin(RunParameters(endpoint="sales", target="noop"))
        source.stage(begun, next(iter(source.prepare(begun))))
    assert run("migrate", "abort", "--yes", "--from", source_url, "--endpoint", "sales").code == 0


def test_a_receipt_is_waited_for_that_a_dead_process_is_still_committing(tmp_path: Path, postgresql_url: str) -> None:
    with ends(filled_file(tmp_path), postgresql_url) as (source, target):
        assert isinstance(target, SqlStoreTarget)
        target.set_up({})
        begun = source.begin(RunParameters(endpoint="sales", target=target.label))
        target.begin(begun)
        batch = MigrationBatch(1, BatchStatus.STAGED, 3)
        receipts = target._receipts(begun)
        with ThreadPoolExecutor(1) as pool, connected(postgresql_url) as committing:
            receipts.locked(committing, batch)
            receipts.write(committing, batch, {0, 2})
            asking = pool.submit(target.received, begun, batch)
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while not asking.done() and not committing.execute(text(waiting)).scalar():
                time.sleep(0.01)
            committing.commit()
            assert asking.result(PATIENCE) == {0, 2}


def test_a_user_who_may_create_no_receipts_is_told_before_anything_moves(
    tmp_path: Path, postgresql: PostgreSQLDatabases, postgresql_url: str
) -> None:
    with target_store(postgresql_url) as store:
        store.setup_infrastructure()
    guest = postgresql.create_role("receiver", "Toy-pa55word", postgresql_url)
    execute(
        postgresql_url,
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO receiver",
    )
    with ends(filled_file(tmp_path), guest) as (source, target):
        with pytest.raises(MigrationError, match="no table may be created beside it, and a run keeps its receipts"):
            run(source, target, "sales", RunSettings())
        assert source.run("sales") is None


@pytest.fixture(name="run")
def command_line(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys, {})
