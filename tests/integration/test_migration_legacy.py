"""NServiceBus' tables on real databases: found, read, hidden, moved, and given back as they were."""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from delaystore.errors import MigrationError
from delaystore.migrations.abc import BatchStatus, MigrationSource, Rejected, RunCounts, RunStatus
from delaystore.migrations.abc import MigrationRow as SourceRow
from delaystore.migrations.runner import RunSettings, abort, check, run, verify
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports.rabbitmq.delay_headers import due_time
from tests.integration.cascades import arrivals, channel_to, make_queue
from tests.integration.legacy_tables import (
    HEADERS,
    KINDS,
    NHIBERNATE,
    NOW,
    NSERVICEBUS,
    OLD_GUIDS,
    PROPERTIES,
    ROWS,
    YEAR,
    Kind,
    Row,
    make_table,
    quoted,
)
from tests.integration.migrating import begun, dump
from tests.integration.sql_stores import connected

DATABASES = ("postgresql", "mysql")
GOOD = [row for row in ROWS if row.reason is None]
BAD = [row for row in ROWS if row.reason is not None]


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The kind of database, and the URL of an empty one."""
    fixture = {"postgresql": "postgresql_url", "mysql": "mariadb_url"}[request.param]
    return request.param, request.getfixturevalue(fixture)


@pytest.fixture(params=list(KINDS))
def legacy(request: pytest.FixtureRequest, database: tuple[str, str]) -> tuple[Kind, str]:
    """A kind of table with all rows, and its database's URL."""
    name, url = database
    kind = KINDS[request.param][name]
    make_table(url, kind, ROWS)
    return kind, url


@pytest.fixture
def source(legacy: tuple[Kind, str]) -> Iterator[MigrationSource]:
    kind, url = legacy
    with closing(open_source(f"{kind.name}+{url}")) as source:
        yield source


def staged(source: Any, found: Any) -> list[SourceRow | Rejected]:
    return [row for batch in source.batches(found) for row in source.stage(found, batch)]


def test_endpoints_are_found_and_counted_by_queue(legacy: tuple[Kind, str], source: MigrationSource) -> None:
    kind, _ = legacy
    assert source.endpoints() == ["My_Sales" if kind.name == "nservicebus-sql" else "My.Sales"]
    assert source.check("My.Sales") == []
    found = source.waiting("My.Sales", None)
    assert (found.count, found.earliest, found.latest) == (7, NOW - timedelta(days=1), NOW + 9 * YEAR)
    assert found.destinations == {"": 1, "Büro 'x' %s": 1, "orders": 5}
    assert source.late("My.Sales", NOW + 8.5 * YEAR) == 1
    later = source.waiting("My.Sales", NOW + timedelta(hours=2))
    assert (later.count, later.staying) == (5, 2)


def test_rows_become_messages_and_bad_ones_say_why(legacy: tuple[Kind, str], source: MigrationSource) -> None:
    kind, _ = legacy
    found = begun(source, "My.Sales", batch_size=3)
    rows = staged(source, found)
    messages = {row.message.message_id: row.message for row in rows if isinstance(row, SourceRow)}
    assert messages == {message.message_id: message for message in (row.message(kind) for row in GOOD)}
    rejected = {row.row_id: row.reason for row in source.left(found)}
    assert rejected.keys() == {row.row_id for row in BAD}
    assert all(re.match(row.reason or "$", rejected[row.row_id]) for row in BAD)


def test_rows_go_back_bit_for_bit(legacy: tuple[Kind, str], source: MigrationSource) -> None:
    kind, url = legacy
    before = dump(url, kind.table)
    found = begun(source, "My.Sales", batch_size=3)
    assert len(dump(url, kind.table)) == len(BAD)
    (batch, *_) = source.batches(found, BatchStatus.PENDING)
    (refused, *moved) = source.stage(found, batch)
    source.complete(found, batch, [Rejected(refused.row_id, "no such queue")])
    assert len(dump(url, kind.table)) == len(BAD) + 1
    list(source.give_back(found, rejected=True))
    after = dump(url, kind.table)
    assert set(map(repr, after)) < set(map(repr, before))
    assert len(after) == len(before) - len(moved)


def test_all_that_can_move_arrives_in_a_store(
    legacy: tuple[Kind, str], source: MigrationSource, sqlite_url: str
) -> None:
    kind, url = legacy
    with closing(open_target(sqlite_url, "sales")) as target:
        report = run(source, target, "My.Sales", RunSettings(batch_size=2, allow_rejects=True))
        assert report.counts == RunCounts(prepared=5, moved=5)
        assert {row.row_id for row in report.left} == {row.row_id for row in BAD}
        assert report.remaining == 2
        assert verify(source, target, "My.Sales").good
    assert len(dump(url, kind.table)) == 2
    with closing(SqlDelayedMessageStore(sqlite_url)) as store:
        store.initialize("sales", TransactionMode.NONE)
        assert {m.message_id: m for m in store.list().messages} == {
            m.message_id: m for m in (row.message(kind) for row in GOOD)
        }


def test_messages_of_nservicebus_arrive_from_the_cascade(postgresql_url: str, rabbitmq_url: str) -> None:
    """The rest moves only when told to; what is due in nine years stays behind, rejected by name."""
    soon = Row(20, datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4), headers=HEADERS)
    rows = [soon, *GOOD[1:]]
    kind = NSERVICEBUS["postgresql"]
    make_table(postgresql_url, kind, rows)
    with (
        channel_to(rabbitmq_url) as channel,
        closing(open_source(f"nservicebus-sql+{postgresql_url}")) as source,
        closing(open_target(f"{rabbitmq_url}?delays=nservicebus-v2", "sales")) as target,
    ):
        for queue in {str(row.destination) for row in rows}:
            make_queue(channel, queue)
        report = run(source, target, "My.Sales", RunSettings(allow_rejects=True))
        assert report.counts == RunCounts(prepared=5, moved=4, returned=1)
        assert [one.row_id for one in report.left] == [rows[-1].row_id]
        (left,) = dump(postgresql_url, kind.table)  # its timeout manager still finds it
        assert UUID(rows[-1].row_id) in left
        came = {arrival.properties.message_id: arrival for arrival in arrivals(channel, ["orders"], 2)}
        assert came.keys() == {soon.message(kind).message_id, rows[1].row_id}
        found = came[soon.message(kind).message_id]
    assert found.at >= soon.due_time.timestamp()
    expected = soon.message(kind)
    assert found.body == expected.body
    assert {name: found.properties.headers[name] for name in expected.headers} == expected.headers
    due = due_time(found.properties.headers)
    assert due is not None
    assert timedelta(0) <= due - soon.due_time < timedelta(seconds=1)
    assert {name: getattr(found.properties, name) for name in PROPERTIES} == PROPERTIES


def test_what_is_due_in_nine_years_is_refused_by_name(postgresql_url: str, rabbitmq_url: str) -> None:
    make_table(postgresql_url, NSERVICEBUS["postgresql"], GOOD)
    with (
        closing(open_source(f"nservicebus-sql+{postgresql_url}")) as source,
        closing(open_target(f"{rabbitmq_url}?delays=nservicebus-v2", "sales")) as target,
    ):
        texts = [problem.text for problem in check(source, target, "My.Sales", None).problems]
        assert any("1 message is due after" in text for text in texts)
        with pytest.raises(MigrationError, match="nothing was moved"):
            run(source, target, "My.Sales", RunSettings())


def test_one_table_of_all_endpoints_moves_one_at_a_time(database: tuple[str, str]) -> None:
    name, url = database
    kind = NHIBERNATE[name]
    make_table(url, kind, GOOD[:2])
    other = Kind(kind.name, kind.table, "Billing", kind.types)
    insert_more(url, other, [Row(8, NOW), Row(9, NOW)])
    with closing(open_source(f"nhibernate+{url}")) as source:
        assert source.endpoints() == ["Billing", "My.Sales"]
        assert source.waiting("Billing", None).count == 2
        found = begun(source, "Billing")
        assert source.counts(found).prepared == 2
        assert source.waiting("My.Sales", None).count == 2
        assert len(dump(url, kind.table)) == 2
        assert source.run("My.Sales") is None
        source.set_status(found, RunStatus.ABORTED)


def test_guids_in_binary_columns_become_text(mariadb_url: str, sqlite_url: str) -> None:
    make_table(mariadb_url, OLD_GUIDS, ROWS)
    before = dump(mariadb_url, OLD_GUIDS.table)
    with (
        closing(open_source(f"nhibernate+{mariadb_url}")) as source,
        closing(open_target(sqlite_url, "My.Sales")) as target,
    ):
        report = run(source, target, "My.Sales", RunSettings(allow_rejects=True))
        assert {one.row_id for one in report.left} == {row.row_id for row in BAD}
        assert verify(source, target, "My.Sales").waiting == verify(source, target, "My.Sales").moved
        abort(source, "My.Sales", target=target)
    with closing(SqlDelayedMessageStore(sqlite_url)) as store:
        store.initialize("My.Sales", TransactionMode.NONE)
        kept = {one.message_id: one for one in store.list().messages}
    assert kept == {one.message_id: one for one in (row.message(OLD_GUIDS) for row in GOOD)}
    bad = {UUID(row.row_id).bytes_le for row in BAD}
    assert dump(mariadb_url, OLD_GUIDS.table) == [row for row in before if row[0] in bad]


def test_tables_of_other_names_are_named_by_a_template(database: tuple[str, str]) -> None:
    name, url = database
    usual = KINDS["msmq-sql"][name]
    make_table(url, Kind(usual.name, "My.Sales.delayed", "My.Sales", usual.types, usual.machine), GOOD)
    mark = "&" if "?" in url else "?"
    with closing(open_source(f"msmq-sql+{url}{mark}table={{endpoint}}.delayed")) as source:
        assert source.endpoints() == ["My.Sales"]
        assert source.waiting("My.Sales", None).count == len(GOOD)


def test_machines_are_left_out_where_the_url_says_so(postgresql_url: str) -> None:
    usual = NSERVICEBUS["postgresql"]
    make_table(postgresql_url, Kind(usual.name, usual.table, usual.endpoint, usual.types, "@SRV1"), GOOD[:1])
    for parameters, queue in (("", "orders@SRV1"), ("?addresses=msmq", "orders")):
        with closing(open_source(f"nservicebus-sql+{postgresql_url}{parameters}")) as source:
            assert source.waiting("My.Sales", None).destinations == {queue: 1}


def test_another_table_of_that_name_is_told_apart(database: tuple[str, str]) -> None:
    name, url = database
    usual = NSERVICEBUS[name]
    types = {column: kind for column, kind in usual.types.items() if column != "Headers"}
    make_table(url, Kind(usual.name, usual.table, usual.endpoint, types), [])
    with closing(open_source(f"nservicebus-sql+{url}")) as source:
        (problem,) = source.check("My.Sales")
        assert "no column 'Headers' (the headers)" in problem.text
        (problem,) = source.check("Other")
        assert "endpoints found here: My_Sales" in problem.text


def test_times_are_utc_whatever_the_session_thinks(database: tuple[str, str]) -> None:
    name, url = database
    make_table(url, NSERVICEBUS[name], GOOD[:1])
    zone = {"postgresql": "options=-c%20timezone%3DAsia/Tokyo", "mysql": "init_command=SET%20time_zone%3D'%2B09:00'"}
    mark = "&" if "?" in url else "?"
    with closing(open_source(f"nservicebus-sql+{url}{mark}{zone[name]}")) as source:
        assert source.waiting("My.Sales", None).earliest == GOOD[0].due_time
        (row,) = staged(source, begun(source, "My.Sales"))
        assert isinstance(row, SourceRow)
        assert row.message.due_time == GOOD[0].due_time


def insert_more(url: str, kind: Kind, rows: list[Row]) -> None:
    make_table(url, Kind(kind.name, "more", kind.endpoint, kind.types, kind.machine), rows)
    with connected(url) as connection:
        connection.exec_driver_sql(f"INSERT INTO {quoted(connection, kind.table)} SELECT * FROM more")
        connection.exec_driver_sql("DROP TABLE more")
