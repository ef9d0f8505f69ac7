"""PostgreSQL's databases of odd encodings, whose sessions write times, bytes and text as nobody expects."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.pq import Format
from sqlalchemy import create_engine, event
from sqlalchemy.orm import Session

from delaystore.errors import ConfigurationError, StoreError
from delaystore.migrations.runner import RunSettings
from delaystore.migrations.runner import run as migrate
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import message, opened
from tests.servers import PostgreSQLDatabases

ODD = {
    "bytea_output": "escape",
    "client_encoding": "SQL_ASCII",
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "standard_conforming_strings": "off",
    "timezone": "Asia/Kathmandu",
}
GERMAN = {"datestyle": "German, DMY"}
NOON = datetime(2027, 3, 4, 12, tzinfo=UTC)
TEXT = "Büro '\\ 😀"


@pytest.fixture(params=["SQL_ASCII", "UTF8"])
def odd_url(request: pytest.FixtureRequest, postgresql: PostgreSQLDatabases) -> Iterator[str]:
    """An empty database of that encoding."""
    url = postgresql.create_database(request.param, ODD)
    yield url
    postgresql.drop_database(url)


@pytest.fixture
def german_url(postgresql: PostgreSQLDatabases) -> Iterator[str]:
    url = postgresql.create_database(settings=GERMAN)
    yield url
    postgresql.drop_database(url)


@pytest.mark.long_runs("UTF8")
def test_a_message_goes_from_set_up_to_its_queue(odd_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = CommandLine(capsys, {})
    ends = ["--store", odd_url, "--transport", odd_url, "--endpoint", "sales"]
    assert run("setup", *ends, "--queue", "Büro").code == 0
    sent = run("send", *ends, "Büro", TEXT, "--delay", "0", "--header", f"größe={TEXT}", "--message-id", TEXT)
    assert sent.code == 0, sent.err
    (listed,) = run("list", "--store", odd_url, "--endpoint", "sales", "--json").document["messages"]
    assert listed["message_id"] == TEXT
    assert run("dispatch", *ends, "--once", "--json").document["delivered"] == 1
    (received,) = run("receive", "Büro", "--transport", odd_url, "--json").document["messages"]
    assert (received["message_id"], received["headers"]["größe"]) == (TEXT, TEXT)


@pytest.mark.long_runs("UTF8")
def test_what_waits_moves_to_another_store(odd_url: str, sqlite_url: str) -> None:
    kept = [
        message(NOON, 0.000001, TEXT, body=bytes(range(256)), headers={"a": TEXT, "b": b"\xff", "at": NOON}),
        message(NOON, 3600, "second", destination=TEXT),
    ]
    with opened(odd_url) as store:
        store.store_many(kept)
        assert store.count_by_due_time(timedelta(hours=1)) == {NOON: 1, NOON + timedelta(hours=1): 1}
    with closing(open_source(odd_url)) as source, closing(open_target(sqlite_url, "sales")) as target:
        migrate(source, target, "sales", RunSettings(batch_size=1))
    with opened(sqlite_url) as store:
        assert list(store.list().messages) == kept


def test_a_character_that_the_database_lacks_is_one_clear_line(postgresql: PostgreSQLDatabases) -> None:
    url = postgresql.create_database("LATIN1")
    with opened(url) as store:
        store.store(fits := message(NOON, message_id="é", headers={"a": TEXT}))
        assert store.get("é") == fits
        with pytest.raises(StoreError, match='"UTF8" has no equivalent in encoding "LATIN1"'):
            store.store(message(NOON, message_id=TEXT))
    postgresql.drop_database(url)


def test_connections_of_ones_own_must_write_iso_times(german_url: str) -> None:
    with opened(german_url) as ours:
        ours.store(stored := message(NOON))
        engine = create_engine(german_url)
        store = SqlDelayedMessageStore(engine)
        store.initialize("sales", TransactionMode.NONE)
        for ask in (store.now, store.list, lambda: store.get(stored.message_id)):
            with pytest.raises(ConfigurationError, match="give your connections datestyle = 'ISO'") as raised:
                ask()
            assert "\n" not in str(raised.value)
        with Session(engine) as session, session.begin():
            ours.enlist(session).store(message(NOON, message_id="enlisted"))  # writing reads no times
        engine.dispose()
        assert ours.count() == 2


def test_a_claim_returns_bodies_in_binary_form(prepared_postgresql_url: str) -> None:
    engine = create_engine(prepared_postgresql_url)
    forms: list[int] = []

    @event.listens_for(engine, "after_cursor_execute")
    def note(_connection: object, cursor: Any, statement: str, *_others: object) -> None:
        if "SKIP LOCKED" in statement:
            forms.append(cursor.format)

    with closing(SqlDelayedMessageStore(engine)) as store:
        store.initialize("sales", TransactionMode.RECEIVE_ONLY)
        store.setup_infrastructure()
        sent = message(store.now(), body=bytes(range(256)))
        store.store(sent)
        with store.transaction() as transaction:
            (fetched,) = transaction.fetch_batch(store.now(), 10, 1000)
            assert fetched.body == sent.body
            assert transaction.remove_many([fetched]) == 1
    engine.dispose()
    assert forms == [Format.BINARY]
