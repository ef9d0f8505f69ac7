"""sizing.md, postgresql.md, backup.md and upgrade.md: their commands run as they stand, but for addresses.

What they say of backups holds as well.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import make_url

from delaystore.errors import StoreError
from delaystore.filters import MessageFilter
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.sql_stores import message, opened
from tests.preloaded.starting import commands_folder
from tests.servers import PostgreSQL
from tests.servers.postgresql import PROGRAMS, connect
from tests.servers.programs import find_program

DOCUMENTS = Path(__file__).parents[2] / "docs"
SIZING, POSTGRESQL = "explanation/sizing.md", "reference/postgresql.md"
BACKUP, UPGRADE = "how-to/backup.md", "how-to/upgrade.md"
ADD_TABLE = "CREATE TABLE sales_delayed_more (LIKE sales_delayed INCLUDING ALL) INHERITS (sales_delayed)"
FILL_TABLE = """INSERT INTO sales_delayed_more SELECT 'more-' || message_id, destination, due_time, next_attempt,
failure_count, headers, properties, body FROM ONLY sales_delayed"""
SETTINGS = {"fsync": "off", "wal_level": "logical"}
StartServer = Callable[[Callable[[], PostgreSQL]], PostgreSQL]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCUMENTS / document).read_text(), re.DOTALL)


def shell(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run by a shell that finds PostgreSQL's programs, and ours."""
    programs = Path(find_program("pg_dump", *PROGRAMS)).parent
    path = os.pathsep.join([commands_folder(), str(Path(sys.executable).parent), str(programs), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    return subprocess.run(["bash", "-euc", commands], cwd=folder, env=environment, capture_output=True, text=True)


def superuser_url(server: PostgreSQL, database: str) -> str:
    """As psql and delaystore take it."""
    url = make_url(server.admin_url).set(drivername="postgresql", database=database)
    return url.render_as_string(hide_password=False)


def execute(url: str, *statements: str) -> None:
    with connect(make_url(url)) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def fill(url: str) -> None:
    """Three messages wait in the endpoint's table, three in one that inherits from it."""
    with opened(url) as store:
        store.store_many(message(store.now(), 3600 + number) for number in range(3))
    execute(url, ADD_TABLE, FILL_TABLE)


def ids_in(url: str) -> list[str]:
    with opened(url) as store:
        return [waiting.message_id for waiting in store.list().messages]


def test_an_upgrade_finds_what_was_prepared(postgresql_url: str) -> None:
    """The columns and indexes of a table of 0.1.0, which has none of them."""
    (prepared,) = blocks(UPGRADE, "sql")
    added = ("message_key", "first_sent", "failures", "failures_of")
    with opened(postgresql_url) as store:
        store.store_many([message(store.now(), 60), failed := message(store.now(), 60, failure_count=1)])
    execute(postgresql_url, "DROP INDEX sales_delayed_failing", "UPDATE sales_delayed_version SET version_num = '0002'")
    execute(postgresql_url, *(f"ALTER TABLE sales_delayed DROP COLUMN {name}" for name in added))
    execute(postgresql_url, *prepared.split(";"))
    indexes = indexes_of(postgresql_url)
    assert {"sales_delayed_keys", "sales_delayed_failing"} <= indexes.keys()
    with opened(postgresql_url) as store:
        assert indexes_of(postgresql_url) == indexes, "setup made them anew"
        assert [each.message_id for each in store.search(MessageFilter(failing=True)).messages] == [failed.message_id]
        store.store(message(store.now(), 60, key="k"))
        assert store.message_id_of("k") is not None


def test_the_programs_for_postgresql_run(postgresql_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, for_alembic = blocks(POSTGRESQL, "python")
    exec(program.replace("postgresql://localhost/app", postgresql_url), {})
    assert capsys.readouterr().out == blocks(POSTGRESQL, "text")[0]
    exec(for_alembic, {})


def indexes_of(url: str) -> dict[str, int]:
    """The names and numbers of the indexes of the table of waiting messages."""
    found = b"SELECT indexrelid::regclass::text, indexrelid FROM pg_index WHERE indrelid = 'sales_delayed'::regclass"
    with connect(make_url(url)) as connection:
        return dict(connection.execute(found).fetchall())


@pytest.mark.long
def test_the_commands_run(start_server: StartServer, tmp_path: Path) -> None:
    old, new = (start_server(lambda: PostgreSQL(SETTINGS)) for _ in range(2))
    for server in (old, new):
        execute(superuser_url(server, "postgres"), "CREATE DATABASE app")
    old_url, new_url = superuser_url(old, "app"), superuser_url(new, "app")
    fill(old_url)
    waiting = ids_in(old_url)
    place = old.directory / "fast"
    place.mkdir(mode=0o700)
    shutil.chown(place, old.directory.owner(), old.directory.group())
    watching = "".join(f'psql "$DELAYSTORE_STORE" -c "{statements}"\n' for statements in blocks(POSTGRESQL, "sql"))
    pages = [block for page in (SIZING, POSTGRESQL, BACKUP) for block in blocks(page, "bash")]
    commands = "\n".join(pages).replace("/mnt/fast/postgresql", str(place)) + watching
    for written in ("postgresql://app@old", "postgresql://app@localhost"):
        commands = commands.replace(written, old_url.removesuffix("/app"))
    done = shell(commands.replace("postgresql://app@new", new_url.removesuffix("/app")), tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(waiting) == 6
    assert ids_in(new_url) == ids_in(superuser_url(old, "restored")) == waiting
    assert "sales_delayed_more" in done.stdout
    with opened(new_url) as store, pytest.raises(StoreError, match="read-only"):
        moved = SqlDelayedMessageStore(old_url)
        moved.initialize("sales", TransactionMode.NONE)
        try:
            moved.store(message(store.now(), 3600))
        finally:
            moved.close()


def test_a_dump_of_the_one_table_leaves_out_what_inherits(private_postgresql: PostgreSQL, tmp_path: Path) -> None:
    urls = [private_postgresql.create_database().replace("+psycopg", "") for _ in range(2)]
    fill(urls[0])
    tables = " ".join(f"--table={name}" for name in ("sales_delayed", "sales_delayed_shelves", "sales_delayed_version"))
    shell(f"pg_dump {tables} '{urls[0]}' | psql '{urls[1]}'", tmp_path)
    assert ids_in(urls[1]) == [message_id for message_id in ids_in(urls[0]) if not message_id.startswith("more-")]
    assert len(ids_in(urls[1])) == 3
    for url in urls:
        private_postgresql.drop_database(url)
