"""A source while others are at work: dispatchers, senders, a second migration, the end of a process or connection."""

import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, make_url, text

from delaystore.errors import MigrationLockedError, StoreError, StorePermissionError, StoreUnavailableError
from delaystore.migrations.abc import BatchStatus, MigrationSource, Rejected, RunCounts, RunParameters, RunStatus
from delaystore.migrations.runner import abort
from delaystore.stores import SqlDelayedMessageStore
from tests.dispatching import wait_until
from tests.integration.migrating import HOLDER, START, begun, count, dump, source_of, tables_of
from tests.integration.sql_stores import connected, execute, message, opened
from tests.servers import MariaDBDatabases, PostgreSQLDatabases

pytestmark = pytest.mark.long_runs("mariadb")

PATIENCE = 60
ROOT = Path(__file__).parents[2]


@contextmanager
def hiding_process(url: str, batch_size: int, deaths: int = 0) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that holds the source and hides its rows."""
    arguments = [sys.executable, "-m", "tests.integration.migrating_process", url, str(batch_size), str(deaths)]
    # without a buffer: two words read at once would leave `select` nothing to see
    process = subprocess.Popen(arguments, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def await_word(process: "subprocess.Popen[bytes]", word: bytes) -> None:
    assert process.stdout is not None
    while True:
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE)
        assert readable, "the process said nothing"
        line = process.stdout.readline().strip()
        assert line, "the process has ended"
        if line == word:
            return


def hidden(url: str) -> list[str]:
    return [key(row) for row in dump(url, "sales_delayed_migrating")]


def waiting(url: str) -> list[str]:
    return [key(row) for row in dump(url, "sales_delayed")]


def key(row: tuple[object, ...]) -> str:
    """The message_id; on MariaDB the side table's own columns come first."""
    values = [value.decode() if isinstance(value, bytes) else value for value in row]
    return next(str(value) for value in values if str(value).startswith("m-"))


def fill(store: SqlDelayedMessageStore, number: int, seconds: float = 3600) -> set[str]:
    now = store.now()
    store.store_many(message(now, seconds + i % 50, message_id=f"m-{i:05d}") for i in range(number))
    return {f"m-{i:05d}" for i in range(number)}


@pytest.mark.long_runs("mariadb", "sqlite")
def test_a_process_killed_while_it_hides_rows_leaves_each_in_one_table(
    store: SqlDelayedMessageStore, database_url: str
) -> None:
    ids = fill(store, 3000)
    with hiding_process(database_url, 10) as process:
        for _ in range(20):
            await_word(process, b"batch")
        process.kill()
        process.wait(PATIENCE)
    before = hidden(database_url)
    assert 200 <= len(before) < 3000
    assert len(before) + len(waiting(database_url)) == 3000
    assert set(before) | set(waiting(database_url)) == ids
    with source_of(database_url) as source, source.lock("sales", "the next one"):
        run = source.run("sales")
        assert run is not None
        assert run.status is RunStatus.PREPARING
        assert source.counts(run).prepared == len(before)
        assert sum(batch.count for batch in source.prepare(run)) == 3000 - len(before)
        assert set(hidden(database_url)) == ids
        assert [b.count for b in source.batches(run, BatchStatus.PENDING)] == [10] * 300
    assert waiting(database_url) == []


@pytest.mark.long_runs("mariadb", "postgresql")
def test_a_death_between_any_two_statements_leaves_each_row_in_one_table(
    store: SqlDelayedMessageStore, database_url: str
) -> None:
    ids = fill(store, 500)
    with hiding_process(database_url, 10, deaths=20) as process:
        await_word(process, b"done")
    with source_of(database_url) as source, source.lock("sales", "the next one"):
        run = source.run("sales")
        assert run is not None
        before = hidden(database_url)
        assert 0 < len(before) < 500
        assert sorted(before + waiting(database_url)) == sorted(ids)
        assert source.counts(run).prepared == len(before)
        list(source.prepare(run))
        assert sorted(hidden(database_url)) == sorted(ids)
        assert source.counts(run).prepared == 500
    assert waiting(database_url) == []


@pytest.mark.long_runs("mariadb", "sqlite")
def test_a_second_migration_is_told_who_is_at_it(store: SqlDelayedMessageStore, database_url: str) -> None:
    fill(store, 10)
    with hiding_process(database_url, 5) as process, source_of(database_url) as source:
        await_word(process, b"prepared")
        refusal = "'sales_delayed' is being migrated by the killed one; wait until it ends, or stop it"
        with pytest.raises(MigrationLockedError, match=refusal), source.lock("sales", "the second"):
            pass
        process.kill()
        process.wait(PATIENCE)
        with (
            source_of(database_url) as third,
            locked_in_time(third, "the third"),
            pytest.raises(MigrationLockedError, match="by the third; wait"),
            source.lock("sales", "the second"),
        ):
            pass


@contextmanager
def locked_in_time(source: MigrationSource, holder: str) -> Iterator[None]:
    """A server may need a moment to see that a process has gone."""
    deadline = time.monotonic() + PATIENCE
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(source.lock("sales", holder))
                break
            except MigrationLockedError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield


def test_before_the_first_run_the_database_says_who_is_at_it(store: SqlDelayedMessageStore, database_url: str) -> None:
    with source_of(database_url) as one, source_of(database_url) as other:
        with one.lock("sales", "the first"):
            known = (
                "the first"
                if database_url.startswith("sqlite")
                else rf"the client of .* \d+ \({make_url(database_url).username}"
            )
            with pytest.raises(MigrationLockedError, match=f"is being migrated by {known}"), other.lock("sales", "x"):
                pass
            with one.lock("sales", "the first, again"):
                pass
            with pytest.raises(MigrationLockedError), other.lock("sales", "x"):
                pass
        with other.lock("sales", "x"):
            pass
        assert tables_of(database_url) == {"sales_delayed", "sales_delayed_loads", "sales_delayed_version"}


def test_a_lock_leaves_no_file_behind(sqlite_url: str) -> None:
    with opened(sqlite_url), source_of(sqlite_url) as source:
        folder = Path(sqlite_url.removeprefix("sqlite:///")).parent
        with source.lock("sales", "me"):
            assert len(list(folder.glob("*.migration-lock"))) == 1
        assert list(folder.glob("*.migration-lock")) == []


OTHERS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}
END = {"postgresql": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_who_has_lost_the_lock_can_write_nothing_more(kind: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(f"{kind}_url")
    with opened(url) as store:
        fill(store, 20)
    with source_of(url) as source, source.lock("sales", "me"):
        run = begun(source, batch_size=10)
        first, second = source.batches(run)
        source.stage(run, first)
        with connected(url) as connection:
            for number in connection.execute(text(OTHERS[kind])).scalars().all():
                connection.execute(text(END[kind].format(number)))
        with pytest.raises(StoreUnavailableError):
            source.complete(run, first, [])
        with pytest.raises(StoreUnavailableError, match="held the migration's lock was lost"):
            source.stage(run, second)
        with source_of(url) as other, other.lock("sales", "the next one"):
            assert [b.status for b in other.batches(run)] == [BatchStatus.STAGED, BatchStatus.PENDING]


def test_rows_that_a_dispatcher_holds_stay_with_it(store: SqlDelayedMessageStore, database_url: str) -> None:
    now = store.now()
    store.store_many(message(now, -10, message_id=f"m-{i}") for i in range(10))
    with store.transaction() as transaction, source_of(database_url) as source:
        held = transaction.fetch_due(store.now(), 4)
        assert len(held) == 4
        run = begun(source, batch_size=3)
        assert source.counts(run).prepared == 6
        assert transaction.remove_many(held) == 4
    assert waiting(database_url) == []
    assert len(hidden(database_url)) == 6


@pytest.mark.long_runs
def test_each_message_is_dispatched_or_hidden_never_both(store: SqlDelayedMessageStore, database_url: str) -> None:
    ids = fill(store, 2000, seconds=-100)
    dispatched: list[str] = []
    started, stop = threading.Event(), threading.Event()

    def dispatch() -> None:
        with opened(database_url) as own:
            while not stop.is_set():
                with own.transaction() as transaction:
                    batch = transaction.fetch_due(own.now(), 10)
                    started.set()
                    dispatched.extend(m.message_id for m in batch[: transaction.remove_many(batch)])
                if not batch:
                    return
                stop.wait(0.01)  # or SQLite, which has one writer, lets the other in only when all is dispatched

    thread = threading.Thread(target=dispatch)
    thread.start()
    assert started.wait(PATIENCE)
    with source_of(database_url) as source:
        begun(source, batch_size=50)
    stop.set()
    thread.join(PATIENCE)
    moved = hidden(database_url)
    assert dispatched
    assert moved
    assert sorted(dispatched + moved + waiting(database_url)) == sorted(ids)


def test_preparing_ends_while_messages_go_on_arriving(store: SqlDelayedMessageStore, database_url: str) -> None:
    fill(store, 500)
    stop = threading.Event()
    arrived: list[str] = []

    def send() -> None:
        with opened(database_url) as own:
            while not stop.is_set():
                name = f"m-new{len(arrived):05d}"
                own.store(message(own.now(), 3600 + len(arrived) % 50, message_id=name))
                arrived.append(name)

    thread = threading.Thread(target=send)
    thread.start()
    with source_of(database_url) as source:
        run = source.begin(RunParameters(endpoint="sales", target="a test", batch_size=50))
        batches = source.prepare(run)
        total = next(batches).count
        before = len(arrived)
        wait_until(lambda: len(arrived) >= before + 5)
        total += sum(batch.count for batch in batches)
    stop.set()
    thread.join(PATIENCE)
    moved = hidden(database_url)
    assert len(moved) == total
    assert len(moved) > 500  # also what arrived meanwhile
    assert len(moved) + len(waiting(database_url)) == 500 + len(arrived)


def test_preparing_ends_though_each_batch_brings_as_many_later_messages(
    store: SqlDelayedMessageStore, database_url: str
) -> None:
    fill(store, 100)
    with source_of(database_url) as source:
        run = source.begin(RunParameters(endpoint="sales", target="a test", batch_size=10))
        for number, _ in enumerate(source.prepare(run)):
            assert number < 50
            now = store.now()  # nothing is locked between two batches
            store.store_many(message(now, 7200 + number, message_id=f"m-later{number}-{i}") for i in range(10))
        assert source.counts(run).prepared > 100


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_missing_rights_are_named_with_what_to_grant(kind: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(f"{kind}_url")
    server: PostgreSQLDatabases | MariaDBDatabases = request.getfixturevalue(kind)
    role = f"reader_{id(request) % 10**8}"
    with opened(url) as store:
        fill(store, 3)
    own = server.create_role(role, "secret-word", url)
    grantee = role if kind == "postgresql" else f"{role}@'%'"
    admin = make_url(server.admin_url).set(database=make_url(url).database)
    admin_url = admin.render_as_string(hide_password=False)
    execute(
        admin_url, f"GRANT SELECT ON sales_delayed TO {grantee}", f"GRANT SELECT ON sales_delayed_version TO {grantee}"
    )
    with source_of(own) as source:
        problems = source.check("sales")
        rights = f"grant SELECT, INSERT, UPDATE, DELETE on sales_delayed, and the right to create .* to '{role}'"
        assert problems
        assert all(problem.fatal for problem in problems)
        assert any(re.search(rights, problem.text) for problem in problems)
        assert "secret-word" not in repr(problems)
        with pytest.raises(StorePermissionError, match=rights):
            source.begin(RunParameters(endpoint="sales", target="a test"))
    assert len(waiting(url)) == 3
    if kind == "postgresql":
        execute(admin_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    else:
        execute(admin_url, f"DROP USER {grantee}")


def test_a_database_that_is_read_only_is_told(sqlite_url: str) -> None:
    with opened(sqlite_url) as store:
        fill(store, 3)
    path = sqlite_url.removeprefix("sqlite:///")
    with source_of(f"sqlite:///file:{path}?mode=ro&uri=true") as source:
        (problem,) = source.check("sales")
        assert "readonly" in problem.text
        assert "allow writing to the database's file and folder" in problem.text
        with pytest.raises(StoreError, match="allow writing"):
            source.begin(RunParameters(endpoint="sales", target="a test"))


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_the_schema_is_named_in_the_url(kind: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(f"{kind}_url")
    if kind == "postgresql":
        schema = 'Old "Sales'
        execute(url, 'CREATE SCHEMA "Old ""Sales"')
    else:
        schema = request.getfixturevalue("mariadb").create_database().split("/")[-1].partition("?")[0]
    with opened(url, schema=schema) as store, opened(url):
        messages = fill(store, 10)
        mark = "&" if "?" in url else "?"
        named = f"{url}{mark}schema={schema.replace(' ', '%20')}"
        with source_of(named) as source, source.lock("sales", "me"):
            assert schema in source.label
            assert source.endpoints() == ["sales"]
            assert source.check("sales") == []
            run = begun(source)
            assert source.counts(run).prepared == len(messages)
            assert store.count() == 0
            assert sum(source.give_back(run, rejected=False)) == 10
            source.clean_up(run)
        store.remove_infrastructure()
    if kind == "mariadb":
        request.getfixturevalue("mariadb").drop_database(f"mysql://x/{schema}")


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_one_table_has_one_lock_however_its_schema_is_named(kind: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(f"{kind}_url")
    schema = "public" if kind == "postgresql" else url.split("/")[-1].partition("?")[0]
    mark = "&" if "?" in url else "?"
    named = f"{url}{mark}schema={schema}"
    with (
        opened(url),
        source_of(url) as one,
        source_of(named) as other,
        one.lock("sales", "me"),
        pytest.raises(MigrationLockedError),
        other.lock("sales", "x"),
    ):
        pass


def test_a_store_with_a_table_of_its_own_name_is_named_in_the_url(sqlite_url: str) -> None:
    with opened(sqlite_url, table="later") as store, source_of(f"{sqlite_url}?table=later") as source:
        fill(store, 5)
        assert source.endpoints() == ["later"]
        assert source.counts(begun(source)).prepared == 5
        assert count(sqlite_url, "later_migrating") == 5


def test_a_restart_between_batches_of_giving_back_loses_nothing(
    store: SqlDelayedMessageStore, database_url: str
) -> None:
    ids = fill(store, 30)
    with source_of(database_url) as source:
        run = begun(source, batch_size=10)
        next(iter(source.give_back(run, rejected=True)))
    with source_of(database_url) as source:
        assert source.run("sales") == run
        assert [batch.count for batch in source.batches(run)] == [0, 10, 10]
        assert source.stage(run, source.batches(run)[0]) == []
        assert sum(source.give_back(run, rejected=True)) == 20
    assert set(waiting(database_url)) == ids


def test_a_message_rescheduled_to_before_the_cut_off_stays(store: SqlDelayedMessageStore, database_url: str) -> None:
    fill(store, 10)
    now = store.now()
    store.reschedule("m-00003", now + timedelta(seconds=5))
    with source_of(database_url) as source:
        run = begun(source, cutoff=now + timedelta(seconds=60))
        assert source.counts(run).prepared == 9
    assert waiting(database_url) == ["m-00003"]


def test_a_message_rescheduled_between_search_and_lock_stays(mariadb_url: str) -> None:
    with opened(mariadb_url) as store, source_of(mariadb_url) as source:
        fill(store, 10)
        now = store.now()

        searched: list[str] = []

        def reschedule(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            if "FOR UPDATE" in statement and not searched:
                searched.append(statement)
                store.reschedule("m-00003", now + timedelta(seconds=5))

        event.listen(Engine, "before_cursor_execute", reschedule)
        try:
            run = begun(source, cutoff=now + timedelta(seconds=60))
        finally:
            event.remove(Engine, "before_cursor_execute", reschedule)
        assert searched
        assert source.counts(run).prepared == 9
        assert waiting(mariadb_url) == ["m-00003"]


@pytest.mark.long
def test_an_abort_killed_before_any_of_its_statements_is_finished_by_the_next_which_tells_the_same(
    tmp_path: Path,
) -> None:
    file = tmp_path / "app.db"
    with opened(f"sqlite:///{file}") as store:
        store.store_many(message(START, number) for number in range(12))
    with source_of(f"sqlite:///{file}") as source, source.lock("sales", HOLDER):
        run = begun(source, batch_size=3)
        first, second, *_ = source.batches(run)
        source.complete(run, first, [Rejected(source.stage(run, first)[0].row_id, "no")])
        source.stage(run, second)
    subprocess.run([sys.executable, "-m", "tests.integration.migrating_process", "abort", file], cwd=ROOT, check=True)
    copies = [path for path in tmp_path.iterdir() if path.suffix[1:].isdigit()]
    assert len(copies) > 10, "a kill at each step"
    for copy in copies:
        with source_of(f"sqlite:///{copy}") as source:
            report = abort(source, "sales")
        assert report.run is not None
        assert report.run.status is RunStatus.ABORTED
        assert report.extra["in_flight"] == 3
        assert report.counts == RunCounts(prepared=12, moved=2, returned=10)
        assert count(f"sqlite:///{copy}", "sales_delayed") == 10
