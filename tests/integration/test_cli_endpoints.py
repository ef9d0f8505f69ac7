"""Which endpoints a database has, and what becomes of one that it does not have."""

from pathlib import Path

import pytest

from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql.schema import EndpointTable, endpoint_tables
from delaystore.stores.sql.setup import HEAD
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import opened
from tests.servers import PostgreSQLDatabases

pytestmark = pytest.mark.long_runs("mariadb")

LATER = ("--delay", "1h")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> CommandLine:
    """The command line, told a database in which `sales` and `billing` have tables."""
    return with_endpoints(capsys, monkeypatch, sqlite_url)


@pytest.fixture
def run_anywhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, database_url: str) -> CommandLine:
    """The same on each database: for what asks its catalog."""
    return with_endpoints(capsys, monkeypatch, database_url)


def with_endpoints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str) -> CommandLine:
    monkeypatch.setenv("DELAYSTORE_STORE", url)
    command = CommandLine(capsys, {})
    for endpoint in ("sales", "billing"):
        assert command("setup", "--endpoint", endpoint).code == 0
    return command


def test_a_database_lists_its_endpoints(run_anywhere: CommandLine, database_url: str) -> None:
    run = run_anywhere
    assert run("setup", "--endpoint", "sales", "--table", "waiting room").code == 0
    assert run("send", "q", *LATER, "--endpoint", "sales").code == 0
    with opened(database_url) as store, store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE other_delayed (a INTEGER)")
        connection.exec_driver_sql("CREATE TABLE other_delayed_version (version_num VARCHAR(32))")
    listed = run("endpoints", "--json").document["endpoints"]
    assert [(one["endpoint"], one["table"], one["waiting"]) for one in listed] == [
        ("billing", "billing_delayed", 0),
        ("sales", "sales_delayed", 1),
        (None, "waiting room", 0),
    ]
    assert {(one["version"], one["upgrade_needed"], one["newer"], one["exact"]) for one in listed} == {
        (HEAD, False, False, True)
    }
    shown = run("endpoints").out
    assert "--table waiting room" in shown
    assert "current" in shown


def test_an_older_and_a_newer_table_are_told(run_anywhere: CommandLine, database_url: str) -> None:
    run = run_anywhere
    with opened(database_url) as store, store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE sales_delayed_version SET version_num = '0001'")
        connection.exec_driver_sql("UPDATE billing_delayed_version SET version_num = '9999'")
    newer, older = run("endpoints", "--json").document["endpoints"]
    assert (newer["upgrade_needed"], newer["newer"]) == (False, True)
    assert (older["upgrade_needed"], older["newer"]) == (True, False)
    shown = run("endpoints").out
    assert "upgrade needed: run `delaystore setup`" in shown
    assert "of a newer delaystore: upgrade this one" in shown


def test_all_schemas_are_looked_into(
    capsys: pytest.CaptureFixture[str], postgresql: PostgreSQLDatabases, postgresql_url: str
) -> None:
    run = CommandLine(capsys, {})
    store = SqlDelayedMessageStore(postgresql_url)
    with store.engine.begin() as connection:
        connection.exec_driver_sql('CREATE SCHEMA "Team A"')
    assert run("setup", "--store", postgresql_url, "--endpoint", "sales").code == 0
    assert run("setup", "--store", postgresql_url, "--endpoint", "ours", "--schema", "Team A").code == 0
    only = run("endpoints", "--store", postgresql_url, "--schema", "Team A", "--json").document["endpoints"]
    assert [one["endpoint"] for one in only] == ["ours"]
    every = run("endpoints", "--store", postgresql_url, "--all-schemas", "--json").document["endpoints"]
    assert [(one["schema"], one["endpoint"]) for one in every] == [("Team A", "ours"), ("public", "sales")]
    guest = postgresql.create_role("guest_of_endpoints", "s3cret", postgresql_url)
    every = run("endpoints", "--store", guest, "--all-schemas", "--json").document["endpoints"]
    assert {(one["schema"], one["version"], one["waiting"]) for one in every} == {
        ("Team A", None, None),
        ("public", None, None),
    }
    assert "may not be read" in run("endpoints", "--store", guest).out
    assert "both given" in run.refused("endpoints", "--store", guest, "--all-schemas", "--schema", "x")
    store.close()


def test_an_empty_database_says_what_to_do(run: CommandLine, sqlite_url: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    result = run("endpoints", "--store", f"sqlite:///{empty}")
    assert (result.code, result.out) == (0, "the database has no endpoints\n")
    assert "no SQLite file" in run.refused("endpoints", "--store", f"sqlite:///{tmp_path / 'none.db'}")
    assert "ends with this command" in run.refused("endpoints", "--store", "memory://")


@pytest.mark.parametrize("command", [["send", "q", *LATER], ["send", "q", "--file", "a.csv"]])
def test_a_mistyped_endpoint_is_not_made(
    run_anywhere: CommandLine, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_anywhere
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("message_id,delay,body\na,60,x\n")
    line = run.refused(*command, "--endpoint", "slaes")
    assert "there is no endpoint 'slaes' in this database (did you mean 'sales'?); for a new one add --create" in line
    line = run.refused(*command, "--endpoint", "something-else")
    assert "(it has 'billing', 'sales')" in line
    line = run.refused(*command, "--endpoint", "sales", "--table", "sales_delayd")
    assert "there is no table 'sales_delayd' in this database (did you mean 'sales_delayed'?)" in line
    assert {one["endpoint"] for one in run("endpoints", "--json").document["endpoints"]} == {"billing", "sales"}
    assert run(*command, "--endpoint", "slaes", "--create").code == 0
    assert run("count", "--endpoint", "slaes").out == "1\n"


@pytest.mark.parametrize("command", [["list"], ["count"], ["show", "a"], ["cancel", "a"], ["health"], ["status"]])
def test_who_looks_is_told_similar_names_too(run: CommandLine, command: list[str]) -> None:
    line = run.refused(*command, "--endpoint", "saless")
    assert "there is no endpoint 'saless' in this database (did you mean 'sales'?); check its name" in line
    assert "delaystore setup" in line


def test_a_sqlite_file_is_made_only_where_that_is_wanted(run: CommandLine, tmp_path: Path) -> None:
    missing = tmp_path / "app.db"
    store = ("--store", f"sqlite:///{missing}", "--endpoint", "sales")
    line = run.refused("send", "q", *LATER, *store)
    assert f"there is no SQLite file '{missing}'; check the path; for a new one add --create" in line
    assert not missing.exists()
    assert run("send", "q", *LATER, "--create", *store).code == 0
    assert run("send", "q", *LATER, *store).code == 0


def test_a_dry_run_remarks_on_it(run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("message_id,delay,body\na,60,x\n")
    tried = run("send", "q", "--file", "a.csv", "--dry-run", "--endpoint", "slaes")
    assert (tried.code, "1 message would be loaded" in tried.out) == (0, True)
    assert "note: there is no endpoint 'slaes' in this database (did you mean 'sales'?)" in tried.err


def test_tables_of_tests_are_no_endpoints(sqlite_url: str) -> None:
    with opened(sqlite_url) as store:
        found = endpoint_tables(store.engine)
        assert [one.table for one in found] == [store.table.name]
    assert EndpointTable(table="_delayed", schema=None, version=HEAD).endpoint is None


@pytest.mark.parametrize("command", ["health", "status"])
def test_looking_makes_no_file_of_the_transport_either(run: CommandLine, tmp_path: Path, command: str) -> None:
    missing = tmp_path / "queues.db"
    transport = ("--transport", f"sqlite:///{missing}", "--endpoint", "sales")
    assert f"there is no SQLite file '{missing}'" in run.refused(command, *transport)
    sent = run("send", "q", *LATER, *transport)
    assert (sent.code, sent.err.startswith("warning: nothing takes messages for 'q'")) == (0, True)
    assert not missing.exists()
