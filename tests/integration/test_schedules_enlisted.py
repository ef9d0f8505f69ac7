"""Schedules in callers' transactions: SQLAlchemy, drivers, Django, asyncio; and schedules of forked processes."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from django.db import transaction
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore, DelayedDelivery
from delaystore.errors import InvalidScheduleError
from delaystore.schedules import PutResult, Schedule
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.records import Way
from delaystore.testing import AsyncTestDelivery, FakeTransaction, TestDelivery
from delaystore.transports import InMemoryTransport
from tests.dispatching import wait_until
from tests.integration.sql_stores import execute
from tests.integration.test_enlist_django import shop as shop
from tests.integration.test_enlist_drivers import connected
from tests.long import long

TO_BILLING: Final[Any] = {"destination": "billing", "body": b"pay"}
MONTHLY: Final[Any] = {"cron": "0 9 1 * *", "zone": "Europe/Berlin", **TO_BILLING}
EVERY_MINUTE: Final[Any] = {"every": 60, **TO_BILLING}
ASYNC: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+aiomysql"}


@pytest.fixture(params=["prepared_postgresql_url", long("prepared_mariadb_url"), "prepared_sqlite_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def delivery(url: str) -> Iterator[DelayedDelivery]:
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(url))) as delivery:
        execute(url, "CREATE TABLE tenants (name VARCHAR(20) PRIMARY KEY)")
        yield delivery


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    yield engine
    engine.dispose()


def names(delivery: DelayedDelivery) -> list[str]:
    return [each.name for each in delivery.schedules.list()]


def test_a_tenant_and_its_schedule_are_created_together(delivery: DelayedDelivery, engine: Engine) -> None:
    def create(session: Session, name: str) -> None:
        session.execute(text("INSERT INTO tenants VALUES (:name)"), {"name": name})
        schedules = delivery.enlist(session).schedules
        assert schedules.put(f"invoices/{name}", **MONTHLY) is PutResult.CREATED
        assert schedules.put(f"pings/{name}", **EVERY_MINUTE) is PutResult.CREATED
        assert [each.name for each in schedules.list("invoices/")] == [f"invoices/{name}"]

    with Session(engine) as session:
        create(session, "acme")
        session.rollback()
    assert (names(delivery), delivery.count()) == ([], 0)
    with Session(engine) as session, session.begin():
        create(session, "acme")
    assert names(delivery) == ["invoices/acme", "pings/acme"]
    assert delivery.count() == 2  # the first pings
    with Session(engine) as session:
        enlisted = delivery.enlist(session).schedules
        enlisted.put_all([Schedule.of("pings/other", **EVERY_MINUTE)], prefix="pings/")
        enlisted.pause("invoices/acme")
        session.rollback()
    assert [(each.name, each.paused) for each in delivery.schedules.list()] == [
        ("invoices/acme", False),
        ("pings/acme", False),
    ]
    assert delivery.count() == 2


def test_a_mistake_leaves_the_transaction_usable(delivery: DelayedDelivery, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        session.execute(text("INSERT INTO tenants VALUES ('acme')"))
        with pytest.raises(InvalidScheduleError):
            delivery.enlist(session).schedules.put("a", cron="99 * * * *", **TO_BILLING)
        delivery.enlist(session).schedules.put("a", **MONTHLY)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM tenants")).scalar() == 1
    assert names(delivery) == ["a"]


def test_a_nested_transaction_that_is_rolled_back(delivery: DelayedDelivery, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        enlisted = delivery.enlist(session).schedules
        enlisted.put("kept", **EVERY_MINUTE)
        nested = session.begin_nested()
        enlisted.put("undone", **EVERY_MINUTE)
        enlisted.delete("kept")
        nested.rollback()
    assert names(delivery) == ["kept"]
    assert delivery.count() == 2


@pytest.mark.parametrize("url", ["prepared_postgresql_url", long("prepared_mariadb_url")], indirect=True)
def test_an_edit_sees_occurrences_that_are_newer_than_its_snapshot(delivery: DelayedDelivery, engine: Engine) -> None:
    """MariaDB's transactions read rows as of their first statement."""
    delivery.schedules.put("a", **EVERY_MINUTE)
    now = delivery.operations.now()
    delivery.schedules.put("a", starts=now - timedelta(hours=1), **EVERY_MINUTE)
    for change in ("put", "delete"):
        with engine.begin() as connection:
            enlisted = delivery.enlist(connection).schedules
            assert enlisted.get("a") is not None
            assert delivery.schedules.backfill("a", now - timedelta(minutes=5), now) == 5 * (change == "put")
            delivery.schedules.put("a", **{**EVERY_MINUTE, "body": b"newer"}, starts=now - timedelta(hours=1))
            if change == "put":
                enlisted.put("a", **{**EVERY_MINUTE, "body": b"new"}, starts=now - timedelta(hours=1))
            else:
                enlisted.delete("a")
        bodies = {each.body for each in delivery.list().messages}
        assert bodies == ({b"new"} if change == "put" else set())


def test_the_transaction_of_a_driver(url: str, delivery: DelayedDelivery) -> None:
    with closing(connected(url)) as connection:
        for ends_well in (False, True):
            connection.cursor().execute("INSERT INTO tenants VALUES ('acme')")
            enlisted = delivery.enlist(connection)
            enlisted.schedules.put("pings/acme", **EVERY_MINUTE)
            enlisted.schedules_as(Way.CLI, "ann").pause("pings/acme")
            enlisted.schedules.resume("pings/acme")
            if ends_well:
                connection.commit()
            else:
                connection.rollback()
            assert names(delivery) == (["pings/acme"] if ends_well else [])
            assert delivery.count() == (2 if ends_well else 0)
        cursor = connection.cursor()
        cursor.execute("SELECT count(*) FROM tenants")
        assert cursor.fetchone()[0] == 1


def test_the_transaction_of_django(url: str, shop: Any, delivery: DelayedDelivery) -> None:
    assert url
    with transaction.atomic(using=shop.alias):
        delivery.enlist(shop).schedules.put("a", **EVERY_MINUTE)
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=shop.alias):
        delivery.enlist(shop).schedules.put("b", **EVERY_MINUTE)
        delivery.enlist(shop).schedules.delete("a")
        raise ZeroDivisionError
    assert names(delivery) == ["a"]
    assert delivery.count() == 2


def test_a_commit_wakes_the_dispatcher(url: str, engine: Engine) -> None:
    transport = InMemoryTransport(auto_declare=True)
    with DelayedDelivery("sales", SqlDelayedMessageStore(url), transport) as delivery:
        with Session(engine) as session, session.begin():
            delivery.enlist(session).schedules.put("a", every=1, **TO_BILLING)
        wait_until(lambda: transport.depth("billing") is not None and delivery.health().delivered >= 2)


def test_the_store_in_memory_takes_part() -> None:
    with TestDelivery() as delivery:
        for ends_well in (False, True):
            with FakeTransaction() as fake:
                delivery.enlist(fake).schedules.put("a", **EVERY_MINUTE)
                assert names(delivery) == []
                if not ends_well:
                    fake.rollback()
        assert names(delivery) == ["a"]
        assert len(delivery.waiting()) == 2


def test_on_an_event_loop(url: str) -> None:
    execute(url, "CREATE TABLE tenants (name VARCHAR(20) PRIMARY KEY)")
    asynchronous = make_url(url).set(drivername=ASYNC[make_url(url).get_backend_name().replace("mariadb", "mysql")])

    async def program() -> None:
        store = AsyncSqlDelayedMessageStore(asynchronous.render_as_string(hide_password=False))
        engine = create_async_engine(asynchronous)
        async with AsyncDelayedDelivery("sales", store) as delivery:
            assert await delivery.schedules.put("a", **EVERY_MINUTE) is PutResult.CREATED
            for ends_well in (False, True):
                async with AsyncSession(engine) as session:
                    await session.execute(text("INSERT INTO tenants VALUES ('acme')"))
                    enlisted = delivery.enlist(session)
                    await enlisted.schedules.put("b", **EVERY_MINUTE)
                    await enlisted.schedules_as(Way.CLI, "ann").pause("a")
                    await (session.commit() if ends_well else session.rollback())
                found = {each.name: each.paused for each in await delivery.schedules.list()}
                assert found == ({"a": True, "b": False} if ends_well else {"a": False})
            assert await delivery.count() == 2
            changes = await delivery.operations.changes()
            assert [(each.action, each.about, each.by) for each in changes] == [("pause", "schedule a", "ann")]
            assert len(await delivery.schedules.upcoming("b", 3)) == 3
            assert await delivery.schedules_as(Way.CLI).resume("a") is True
            assert await delivery.schedules.delete("b") is True
        await engine.dispose()

    asyncio.run(program())


def test_a_settable_clock_on_an_event_loop() -> None:
    async def program() -> list[datetime]:
        async with AsyncTestDelivery() as delivery:
            await delivery.schedules.put("a", **EVERY_MINUTE)
            start = delivery.clock.now()
            found = await delivery.dispatch_for(minutes=3)
            assert [each.due_time - start for each in found] == [timedelta(minutes=each) for each in (1, 2, 3)]
            return [each.due_time for each in found]

    assert len(asyncio.run(program())) == 3


def test_schedules_of_a_forked_process(url: str, delivery: DelayedDelivery) -> None:
    """A child uses its own connection; the delivery of its parent works on."""
    delivery.schedules.put("parent", **EVERY_MINUTE)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            delivery.schedules.put("child", **EVERY_MINUTE)
            delivery.schedules.pause("parent")
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert [(each.name, each.paused) for each in delivery.schedules.list()] == [("child", False), ("parent", True)]
    assert delivery.schedules.resume("parent") is True
    assert delivery.count() == 4
