"""The private primary and its standbys do what the tests of fail-overs rely on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import make_url

from tests.faults.patience import PATIENCE, wait_until
from tests.servers import PostgreSQLReplication
from tests.servers.postgresql import connect
from tests.servers.postgresql_replication import PostgreSQLNode


def run(node: PostgreSQLNode, database_url: str, statement: str) -> list[tuple[object, ...]]:
    url = make_url(database_url).set(port=node.port)
    with connect(url) as connection:
        result = connection.execute(statement.encode())
        return result.fetchall() if result.description else []


@contextmanager
def committing(node: PostgreSQLNode, database_url: str) -> Iterator[threading.Event]:
    """A thread that writes; the event is set when it has committed."""
    committed = threading.Event()

    def write() -> None:
        with connect(make_url(database_url).set(port=node.port)) as connection:
            connection.execute("CREATE TABLE waiting ()")
        committed.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield committed
    finally:
        thread.join(PATIENCE)


def test_standbys_have_what_the_primary_has_and_take_no_writes(
    postgresql_replication: PostgreSQLReplication, replicated_url: str
) -> None:
    run(postgresql_replication.primary, replicated_url, "CREATE TABLE numbers AS SELECT 7 AS number")
    for standby in postgresql_replication.standbys:
        postgresql_replication.await_streaming(standby)
        assert run(standby, replicated_url, "SELECT number FROM numbers") == [(7,)]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            run(standby, replicated_url, "DELETE FROM numbers")


def test_a_commit_waits_for_the_synchronous_standby_alone(
    postgresql_replication: PostgreSQLReplication, replicated_url: str
) -> None:
    primary, (synchronous, asynchronous) = postgresql_replication.primary, postgresql_replication.standbys
    asynchronous.kill()
    run(primary, replicated_url, "CREATE TABLE with_one ()")
    synchronous.kill()
    with committing(primary, replicated_url) as committed:
        assert not committed.wait(2)  # seconds; a commit that waits for nobody takes milliseconds
        synchronous.restore()
        assert committed.wait(PATIENCE)


def test_a_promoted_standby_takes_the_place_of_the_primary_which_is_killed(
    postgresql_replication: PostgreSQLReplication, replicated_url: str
) -> None:
    old, (new, _) = postgresql_replication.primary, postgresql_replication.standbys
    run(old, replicated_url, "CREATE TABLE numbers AS SELECT 7 AS number")
    postgresql_replication.promote(new)
    assert postgresql_replication.primary is new
    assert not old.running
    run(new, replicated_url, "INSERT INTO numbers VALUES (8)")
    postgresql_replication.restore()
    assert [node.standby for node in postgresql_replication.nodes] == [
        node is not new for node in postgresql_replication.nodes
    ]
    assert run(old, replicated_url, "SELECT count(*) FROM numbers") == [(2,)]


def test_a_standby_that_receives_nothing_loses_the_tail_when_it_is_promoted(
    postgresql_replication: PostgreSQLReplication, replicated_url: str
) -> None:
    old, (_, behind) = postgresql_replication.primary, postgresql_replication.standbys
    run(old, replicated_url, "CREATE TABLE numbers AS SELECT 7 AS number")
    postgresql_replication.await_streaming(behind)
    behind.follow(None)
    wait_until(
        lambda: not old.query(f"SELECT 1 FROM pg_stat_replication WHERE application_name = '{behind.name}'"),
        "it has gone",
    )
    run(old, replicated_url, "INSERT INTO numbers VALUES (8)")
    postgresql_replication.promote(behind)
    assert run(behind, replicated_url, "SELECT number FROM numbers") == [(7,)]


def test_one_url_names_all_nodes(postgresql_replication: PostgreSQLReplication, replicated_url: str) -> None:
    old, (new, _) = postgresql_replication.primary, postgresql_replication.standbys
    postgresql_replication.promote(new)
    url = postgresql_replication.url_of_all(replicated_url, first=old).replace("+psycopg", "")
    assert url.index(str(old.port)) < url.index(str(new.port))
    with psycopg.connect(f"{url}?target_session_attrs=read-write") as connection:
        assert connection.info.port == new.port
