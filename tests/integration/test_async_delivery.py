"""AsyncDelayedDelivery: the same operations on an event loop, which nothing blocks."""

import asyncio
import gc
import inspect
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from delaystore import (
    AsyncDelayedDelivery,
    AsyncSqlDelayedMessageStore,
    DelayedDelivery,
    DelayedDeliverySettings,
    ManagementOutcome,
    SqlDelayedMessageStore,
)
from delaystore.delivery import AsyncEnlistedDelivery, AsyncOperations, EnlistedDelivery
from delaystore.errors import (
    ConfigurationError,
    DuplicateKeyError,
    DuplicateMessageError,
    MissingDependencyError,
    StoreSetupError,
    StoreUnavailableError,
)
from delaystore.operations import Operations
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.stores.sql import _parts
from delaystore.testing import SettableClock
from delaystore.transports import InMemoryTransport
from tests.integration.sql_stores import message
from tests.servers import MariaDB, PostgreSQL

pytestmark = pytest.mark.long_runs("aiomysql")

HOUR = timedelta(hours=1)
HASTY = DelayedDeliverySettings(store_timeout=2)  # type: ignore[arg-type]
DRIVERS = {
    "psycopg": "postgresql_url",
    "asyncpg": "postgresql_url",
    "aiosqlite": "sqlite_url",
    "aiomysql": "mariadb_url",
    "asyncmy": "mariadb_url",
}
ON_POSTGRESQL = ("psycopg", "asyncpg")


def with_driver(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}+{driver}://{rest}"


@pytest.fixture(params=DRIVERS)
def url(request: pytest.FixtureRequest) -> str:
    """A database with the tables in it, by each driver."""
    return with_driver(request.getfixturevalue(f"prepared_{DRIVERS[request.param]}"), request.param)


Freezing = tuple[PostgreSQL | MariaDB, str]
"""A server that may be paused, and a database of it by some driver."""


@pytest.fixture(params=ON_POSTGRESQL)
def freezing(request: pytest.FixtureRequest) -> Iterator[Freezing]:
    server = request.getfixturevalue(f"private_{DRIVERS[request.param].removesuffix('_url')}")
    url = server.create_database()
    yield server, with_driver(url, request.param)
    server.resume()
    server.drop_database(url)


class Stalls:
    """The longest time for which the loop did nothing else, in seconds."""

    longest = 0.0

    async def watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            self.longest = max(self.longest, time.perf_counter() - began)


@asynccontextmanager
async def ticking(most: float = 0.5) -> AsyncIterator[Stalls]:
    """Fails where the loop stood still for longer than `most` seconds: the machine is slow, a freeze is longer."""
    stalls = Stalls()
    watching = asyncio.create_task(stalls.watch())
    try:
        yield stalls
    finally:
        watching.cancel()
    assert stalls.longest < most


@asynccontextmanager
async def frozen(server: PostgreSQL | MariaDB) -> AsyncIterator[None]:
    """It stands still for the block, but no longer than 20 s: a loop that waits for it could not end that."""
    thaw = threading.Timer(20, server.resume)
    server.pause()
    thaw.start()
    try:
        yield
    finally:
        thaw.cancel()
        server.resume()


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)


def test_everything_that_a_delivery_does(url: str) -> None:
    async def program() -> None:
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url)) as delivery:
            sent = await delivery.send("billing", b"\x00'\\\xff", delay=3600, headers={"n": 1})
            with pytest.raises(DuplicateMessageError):
                await delivery.send("billing", b"", delay=0, message_id=sent)
            found = await delivery.get(sent)
            assert found is not None
            assert (found.body, found.headers) == (b"\x00'\\\xff", {"n": 1})
            many = [message(found.due_time, n, f"{n:04}") for n in range(1200)]
            assert await delivery.send_many(many) == 1200
            with pytest.raises(DuplicateMessageError, match="0007"):
                await delivery.send_many([message(found.due_time, 0, "new"), many[7]])
            assert await delivery.count() == (await delivery.estimate_count()).messages == 1201
            assert sum((await delivery.count_by_due_time(HOUR)).values()) == 1201
            assert len((await delivery.list(limit=5)).messages) == 5
            assert await delivery.reschedule(sent, delay=1) is ManagementOutcome.DONE
            assert await delivery.cancel(sent) is ManagementOutcome.DONE
            assert await delivery.cancel(sent) is ManagementOutcome.NOT_FOUND
            assert (await delivery.health()).store is None

    asyncio.run(program())


def test_the_dispatcher_forwards_what_falls_due(url: str) -> None:
    transport = InMemoryTransport(auto_declare=True)

    async def program() -> None:
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url), transport) as delivery:
            await delivery.send("billing", b"pay", delay=0.1)

            async def is_delivered() -> bool:
                return (await delivery.health()).delivered == 1

            await eventually(is_delivered)
            assert await delivery.stop()

    asyncio.run(program())


def operations(of: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(value)
        for name, value in vars(of).items()
        if not name.startswith("_") and inspect.isfunction(value)
    }


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (AsyncDelayedDelivery, DelayedDelivery),
        (AsyncEnlistedDelivery, EnlistedDelivery),
        (AsyncOperations, Operations),
    ],
)
def test_what_is_awaited_is_what_is_called_elsewhere(ours: type, theirs: type) -> None:
    internal = {"prepare", "check", "check_startable", "health_with", "chunks", "operable_store"}
    internal |= {"changes_as", "sending_as", "replace_many"}
    expected = {name: sign for each in reversed(theirs.__mro__) for name, sign in operations(each).items()}
    assert operations(ours).keys() == expected.keys() - internal
    for name, signature in operations(ours).items():
        if name not in ("enlist", "acting_as"):
            assert signature.parameters == expected[name].parameters, name
            if name not in ("export", "schedules_as"):
                assert inspect.iscoroutinefunction(getattr(ours, name)), name


def test_both_are_made_alike() -> None:
    ours, theirs = (inspect.signature(each).parameters for each in (AsyncDelayedDelivery, DelayedDelivery))
    assert list(ours) == list(theirs)
    assert all(ours[name] == theirs[name] for name in ours if name != "store")


@pytest.mark.long_runs("psycopg", "aiomysql")
def test_the_loop_goes_on_while_the_database_is_frozen(freezing: Freezing) -> None:
    server, url = freezing

    async def program() -> None:
        engine = create_async_engine(url)
        delivery = AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url), InMemoryTransport(auto_declare=True))
        async with delivery, AsyncSession(engine) as session:
            await delivery.send("billing", b"", delay=3600)
            enlisted = delivery.enlist(session)
            await enlisted.send("billing", b"", delay=3600)
            async with ticking(), frozen(server):
                sends = [
                    asyncio.create_task(each("billing", b"", delay=3600)) for each in (delivery.send, enlisted.send)
                ]
                health = await delivery.health(0.3)
                assert "does not answer" in str(health.store)
                assert not any(each.done() for each in sends)
            await asyncio.gather(*sends)
            await session.commit()
            assert await delivery.count() == 4
        await engine.dispose()

    asyncio.run(program())


@pytest.mark.long_runs("psycopg", "aiomysql")
def test_enlisting_by_run_sync_leaves_the_loop_free(freezing: Freezing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call asks the database for the time, as after a while, and by the transaction's own connection alone."""
    monkeypatch.setattr(_parts, "FRESH_FOR", 0.0)
    server, url = freezing

    async def program(delivery: DelayedDelivery) -> None:
        def send(session: Session) -> None:
            delivery.enlist(session).send("billing", b"", delay=60)

        engine = create_async_engine(url)
        async with AsyncSession(engine) as session:
            await session.run_sync(send)
            async with ticking(), frozen(server):
                sending = asyncio.create_task(session.run_sync(send))
                await asyncio.sleep(1)
                assert not sending.done()
            await sending
            await session.commit()
        await engine.dispose()

    with DelayedDelivery("sales", SqlDelayedMessageStore(with_driver(url, "psycopg"))) as delivery:
        asyncio.run(program(delivery))
        assert delivery.count() == 2


@pytest.mark.long_runs("psycopg", "aiomysql")
@pytest.mark.parametrize("freezing", [*ON_POSTGRESQL, "aiomysql", "asyncmy"], indirect=True)
def test_a_send_that_takes_too_long_ends_and_may_be_repeated(freezing: Freezing) -> None:
    server, url = freezing

    async def program() -> None:
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url), settings=HASTY) as delivery:
            await delivery.send("billing", b"", delay=3600, message_id="first")
            async with ticking(), frozen(server):
                with pytest.raises(StoreUnavailableError, match="within 2 s; the message 'again' may be stored"):
                    await delivery.send("billing", b"", delay=3600, message_id="again")
            with suppress(DuplicateMessageError):
                await delivery.send("billing", b"", delay=3600, message_id="again")
            assert await delivery.count() == 2

    asyncio.run(program())


@pytest.mark.long_runs("asyncpg")
def test_closing_ends_while_the_database_is_frozen(freezing: Freezing) -> None:
    server, url = freezing

    async def program() -> None:
        delivery = AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url))
        await asyncio.gather(*(delivery.send("billing", b"", delay=3600) for _ in range(3)))
        async with ticking(), frozen(server), asyncio.timeout(20):
            await delivery.close()

    asyncio.run(program())


@pytest.mark.parametrize("url", [driver for driver in DRIVERS if driver != "aiosqlite"], indirect=True)
def test_a_send_waits_for_another_s_open_transaction_and_the_loop_goes_on(url: str) -> None:
    """The transaction that has the id ends only because the loop goes on."""

    async def program() -> None:
        engine = create_async_engine(url)
        async with (
            AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url)) as delivery,
            AsyncSession(engine) as session,
            ticking(),
        ):
            await delivery.enlist(session).send("billing", b"", delay=3600, message_id="order")
            sending = asyncio.create_task(delivery.send("billing", b"", delay=3600, message_id="order"))
            await asyncio.sleep(0.3)
            assert not sending.done()
            await session.commit()
            with pytest.raises(DuplicateMessageError):
                await sending
        await engine.dispose()

    asyncio.run(program())


@pytest.mark.long_runs("psycopg", "aiomysql")
def test_a_send_behind_a_transaction_that_stays_open_ends(freezing: Freezing) -> None:
    _, url = freezing

    async def program() -> None:
        engine = create_async_engine(url)
        async with (
            AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url), settings=HASTY) as delivery,
            AsyncSession(engine) as session,
        ):
            await delivery.enlist(session).send("billing", b"", delay=3600, message_id="order")
            async with ticking():
                with pytest.raises(StoreUnavailableError, match="within 2 s"):
                    await delivery.send("billing", b"", delay=3600, message_id="order")
        await engine.dispose()

    asyncio.run(program())


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_what_is_enlisted_is_the_caller_s(url: str, how: str) -> None:
    async def program() -> None:
        engine = create_async_engine(url)
        store = AsyncSqlDelayedMessageStore(url)
        async with AsyncDelayedDelivery("sales", store) as delivery:
            async with AsyncSession(store.engine) as session:
                enlisted = delivery.enlist(session)
                await enlisted.send("billing", b"", delay=3600)
                await enlisted.send_many([message(datetime.now(UTC), 60)])
                await enlisted.send("billing", b"", delay=3600, message_id="paid")
                assert await enlisted.get("paid") is not None
                assert await enlisted.reschedule("paid", delay=60) is ManagementOutcome.DONE
                assert await enlisted.cancel("paid") is ManagementOutcome.DONE
                await getattr(session, how)()
            async with engine.connect() as connection:
                await delivery.enlist(connection).send("billing", b"", delay=3600)
                await getattr(connection, how)()
            assert await delivery.count() == (3 if how == "commit" else 0)
        await engine.dispose()

    asyncio.run(program())


def test_at_most_one_message_waits_under_a_key(url: str) -> None:
    async def program() -> None:
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url)) as delivery:
            first = await delivery.send("billing", b"first", delay=3600, key="order")
            with pytest.raises(DuplicateKeyError, match=first):
                await delivery.send("billing", b"", delay=3600, key="order")
            assert await delivery.send("billing", b"", delay=3600, key="order", on_key="keep") == first
            sends = (
                delivery.send("billing", f"{n}".encode(), delay=3600, key="order", on_key="replace") for n in range(8)
            )
            sent = await asyncio.gather(*sends)
            waits = await delivery.get(key="order")
            assert waits is not None
            assert waits.message_id in sent
            await delivery.send("billing", b"last", delay=7200, key="order", on_key="debounce", max_wait=5400)
            moved = await delivery.get(key="order")
            assert moved is not None
            assert moved.due_time < waits.due_time + HOUR
            assert await delivery.count() == 1
            assert await delivery.reschedule(key="order", delay=1) is ManagementOutcome.DONE
            assert await delivery.cancel(key="order") is ManagementOutcome.DONE
            assert await delivery.cancel(key="order") is ManagementOutcome.NOT_FOUND

    asyncio.run(program())


def test_keys_in_the_caller_s_transaction(url: str) -> None:
    async def program() -> None:
        engine = create_async_engine(url)
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url)) as delivery:
            await delivery.send("billing", b"old", delay=3600, key="basket")
            async with AsyncSession(engine) as session:
                enlisted = delivery.enlist(session)
                await enlisted.send("billing", b"lost", delay=3600, key="basket", on_key="replace")
                assert await enlisted.cancel(key="basket") is ManagementOutcome.DONE
                await session.rollback()
            async with AsyncSession(engine) as session, session.begin():
                await delivery.enlist(session).send("billing", b"new", delay=3600, key="basket", on_key="replace")
            page = await delivery.list()
            assert [(each.key, each.body) for each in page.messages] == [("basket", b"new")]
        await engine.dispose()

    asyncio.run(program())


def test_what_is_enlisted_takes_calls_at_the_same_time(url: str) -> None:
    async def program() -> None:
        engine = create_async_engine(url)
        async with on_sql(url) as delivery, AsyncSession(engine) as session:
            enlisted = delivery.enlist(session)
            await asyncio.gather(*(enlisted.send("billing", b"", delay=3600, key=f"{n}") for n in range(5)))
            await session.commit()
            assert await delivery.count() == 5
        await engine.dispose()

    asyncio.run(program())


def test_a_scoped_session_is_its_task_s(tmp_path: Path) -> None:
    async def program() -> None:
        url = f"sqlite+aiosqlite:///{tmp_path / 'app.db'}"
        engine = create_async_engine(url)
        scoped = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url)) as delivery:

            async def send(end: Callable[[], Awaitable[None]]) -> None:
                await delivery.enlist(scoped).send("billing", b"", delay=3600)
                await end()
                await scoped.remove()

            await asyncio.create_task(send(scoped.rollback))
            assert await delivery.count() == 0
            await asyncio.create_task(send(scoped.commit))
            assert await delivery.count() == 1
        await engine.dispose()

    asyncio.run(program())


def test_what_cannot_be_enlisted_on_a_loop_is_refused(tmp_path: Path) -> None:
    async def program() -> None:
        file = tmp_path / "app.db"
        asynchronous = create_async_engine(f"sqlite+aiosqlite:///{file}")
        blocking = create_engine(f"sqlite:///{file}")
        async with on_sql(f"sqlite+aiosqlite:///{file}") as delivery:
            scoped = scoped_session(sessionmaker(blocking))
            with blocking.connect() as connection, Session(blocking) as session:
                for one in (connection, session, scoped):
                    with pytest.raises(ConfigurationError, match=f"a {type(one).__name__} of sqlalchemy cannot be"):
                        await delivery.enlist(one).send("billing", b"", delay=3600)
            says = {asynchronous: "an AsyncConnection or AsyncSession of", asynchronous.connect(): "await it first"}
            for other, said in says.items():
                with pytest.raises(ConfigurationError, match=said):
                    await delivery.enlist(other).send("billing", b"", delay=3600)
            assert await delivery.count() == 0
        scoped.remove()
        blocking.dispose()

    asyncio.run(program())


def test_a_connection_of_psycopg_s_own_is_enlisted(postgresql_url: str) -> None:
    async def program() -> None:
        dsn = postgresql_url.replace("+psycopg", "")
        async with (
            AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(postgresql_url)) as delivery,
            await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as connection,
        ):
            enlisted = delivery.enlist(connection)
            await enlisted.send("billing", b"", delay=3600, message_id="paid")
            await enlisted.send_many([message(datetime.now(UTC), 60)])
            assert await enlisted.cancel("paid") is ManagementOutcome.DONE
            assert await delivery.count() == 0
            await connection.commit()
            assert await delivery.count() == 1
            with psycopg.connect(dsn) as other, pytest.raises(ConfigurationError, match="what belongs to asyncio"):
                await delivery.enlist(other).get("paid")

    asyncio.run(program())


def test_a_cancelled_send_leaves_no_connection_half_used(url: str) -> None:
    async def program() -> None:
        store = AsyncSqlDelayedMessageStore(url)
        async with AsyncDelayedDelivery("sales", store) as delivery:
            for pause in (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008):
                sending = asyncio.create_task(delivery.send("billing", b"", delay=3600, message_id=f"sent {pause}"))
                await asyncio.sleep(pause)
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
                with suppress(DuplicateMessageError):
                    await delivery.send("billing", b"", delay=3600, message_id=f"sent {pause}")
            assert await delivery.count() == 6
            pool: Any = store.engine.sync_engine.pool
            assert pool.checkedout() == 0

    asyncio.run(program())


Database = Callable[[str], Any]
"""What a store is given for a URL: the URL, or an engine of one's own."""


class ClosedWhenCollected(sqlite3.Connection):
    """Aiosqlite leaves what it opens while its task is cancelled to the collector; ours closes what it has opened."""

    def __del__(self) -> None:
        self.close()


def own_engine(url: str) -> AsyncEngine:
    return create_async_engine(url, connect_args={"factory": ClosedWhenCollected})


def writes_at_once(file: Path) -> bool:
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        other.execute("ROLLBACK")
        return True


@pytest.mark.parametrize("database", [str, own_engine], ids=["url", "engine"])
def test_a_statement_that_is_cancelled_leaves_sqlite_s_file_unlocked(tmp_path: Path, database: Database) -> None:
    """Cancelled while the driver's thread executes it: nobody reads what it returns."""
    file = tmp_path / "app.db"

    async def program() -> None:
        store = AsyncSqlDelayedMessageStore(database(f"sqlite+aiosqlite:///{file}"))
        async with AsyncDelayedDelivery("sales", store) as delivery:
            await delivery.send("billing", b"", delay=3600)

            def cancel(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
                task = asyncio.current_task()
                if statement.startswith("INSERT") and task is not None:
                    asyncio.get_running_loop().call_soon(task.cancel)

            event.listen(store.engine.sync_engine, "before_cursor_execute", cancel)
            kept = asyncio.create_task(delivery.send("billing", b"", delay=3600, key="order"))
            await asyncio.wait({kept})
            assert kept.cancelled()
            assert writes_at_once(file)
            assert await delivery.count() == 1
        await store.engine.dispose()

    asyncio.run(program())


@pytest.mark.parametrize("database", [str, own_engine], ids=["url", "engine"])
def test_tasks_cancelled_at_random_lose_nothing_of_sqlite_s(tmp_path: Path, database: Database) -> None:
    file, chance = tmp_path / "app.db", random.Random(7)
    acknowledged: dict[str, str] = {}
    others: set[str] = set()
    """Keys whose message may have been cancelled."""

    async def program() -> None:
        store = AsyncSqlDelayedMessageStore(database(f"sqlite+aiosqlite:///{file}"))
        async with AsyncDelayedDelivery("sales", store) as delivery:
            await delivery.send("billing", b"", delay=3600, key="0")

            async def send(key: str) -> None:
                acknowledged[key] = await delivery.send("billing", b"", delay=3600, key=key, on_key="keep")

            async def cancel(key: str) -> None:
                others.add(key)
                await delivery.cancel(key=key)

            async def reschedule(key: str) -> None:
                await delivery.reschedule(key=key, delay=7200)

            tasks = []
            for number in range(50):
                work, key = chance.choice([send, send, send, cancel, reschedule]), str(number // 2)
                tasks.append(asyncio.create_task(work(key)))
                await asyncio.sleep(chance.random() * 0.02)
                tasks[-1].cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert writes_at_once(file)
            assert {type(each) for each in outcomes} <= {type(None), asyncio.CancelledError}
            waiting = [(each.key, each.message_id) for each in (await delivery.list()).messages]
            assert len(dict(waiting)) == len(waiting)
            assert {key: sent for key, sent in acknowledged.items() if key not in others}.items() <= set(waiting)
        await store.engine.dispose()

    asyncio.run(program())
    gc.collect()  # what is left behind is told here


@pytest.mark.long_runs("psycopg", "aiomysql")
@pytest.mark.parametrize("freezing", [*ON_POSTGRESQL, "aiomysql", "asyncmy"], indirect=True)
def test_a_timeout_of_the_caller_s_ends_a_send(freezing: Freezing) -> None:
    server, url = freezing

    async def program() -> None:
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url)) as delivery:
            await delivery.send("billing", b"", delay=3600)
            async with ticking(), frozen(server):
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await delivery.send("billing", b"", delay=3600)
                assert time.monotonic() - began < 20

    asyncio.run(program())


@pytest.mark.parametrize("own", [False, True], ids=["url", "engine"])
@pytest.mark.parametrize("driver", [driver for driver in DRIVERS if driver != "aiosqlite"])
def test_a_server_that_is_not_there_is_an_outage(driver: str, own: bool) -> None:
    async def program() -> None:
        scheme = "postgresql" if driver in ON_POSTGRESQL else "mysql"
        url = f"{scheme}+{driver}://nobody:secret@127.0.0.1:1/app"
        store = AsyncSqlDelayedMessageStore(create_async_engine(url) if own else url)
        delivery = AsyncDelayedDelivery("sales", store)
        with pytest.raises(StoreUnavailableError) as caught:
            await delivery.send("billing", b"", delay=0)
        assert "secret" not in str(caught.value)
        assert "<class" not in str(caught.value)
        assert (await delivery.health()).store is not None
        await delivery.close()

    asyncio.run(program())


@pytest.mark.parametrize("driver", [driver for driver in DRIVERS if driver != "aiosqlite"])
def test_an_engine_of_one_s_own_will_do(request: pytest.FixtureRequest, driver: str) -> None:
    url = with_driver(request.getfixturevalue(DRIVERS[driver]), driver)

    async def program() -> None:
        engine = create_async_engine(url)
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(engine)) as delivery:
            await delivery.send("billing", b"\x00", delay=3600)
            assert await delivery.count() == 1
        async with engine.connect() as connection:  # it is not closed
            await connection.execute(text("SELECT 1"))
        await engine.dispose()

    asyncio.run(program())


@pytest.mark.parametrize("other", [{"table": "elsewhere"}, {"clock": SettableClock()}], ids=["table", "clock"])
def test_a_dispatcher_on_another_table_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    """It would forward nothing."""
    url = f"sqlite:///{tmp_path / 'app.db'}"
    for ours, theirs in (({}, other), (other, {})):
        store = AsyncSqlDelayedMessageStore(url, **ours, dispatching=SqlDelayedMessageStore(url, **theirs))
        with pytest.raises(ConfigurationError, match="so that nothing would be forwarded"):
            AsyncDelayedDelivery("sales", store, InMemoryTransport())
    store = AsyncSqlDelayedMessageStore(url, **other, dispatching=SqlDelayedMessageStore(url, **other))
    AsyncDelayedDelivery("sales", store, InMemoryTransport())


def test_a_store_in_memory_needs_no_bridge() -> None:
    async def program() -> None:
        transport = InMemoryTransport(auto_declare=True)
        async with AsyncDelayedDelivery("sales", InMemoryDelayedMessageStore(), transport) as delivery:
            sent = await delivery.send("billing", b"", delay=3600)
            assert await delivery.cancel(sent) is ManagementOutcome.DONE
            assert (await delivery.health()).healthy

    asyncio.run(program())


def on_sql(url: str) -> AsyncDelayedDelivery:
    return AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url))


def test_a_key_that_a_dispatcher_has_is_waited_for_beside_the_loop() -> None:
    """Also where nothing is bridged; it is given up only because the loop goes on."""

    async def program() -> None:
        store = InMemoryDelayedMessageStore()
        delivery = AsyncDelayedDelivery("sales", store)
        await delivery.send("billing", b"old", delay=0, key="order")
        async with ticking():
            with store.transaction() as dispatcher:
                (claimed,) = dispatcher.fetch_due(store.now(), 1)
                sending = asyncio.create_task(delivery.send("billing", b"new", delay=3600, key="order"))
                await asyncio.sleep(0.2)
                assert not sending.done()
                dispatcher.remove(claimed)
            sent = await sending
        (waiting,) = (await delivery.list()).messages
        assert (waiting.message_id, waiting.body) == (sent, b"new")

    asyncio.run(program())


def test_another_loop_is_refused(url: str) -> None:
    delivery = on_sql(url)

    async def send() -> str:
        return await delivery.send("billing", b"", delay=3600)

    async def enter() -> None:
        await delivery.__aenter__()

    async def look_enlisted() -> None:
        await delivery.enlist(None).get("one")

    with asyncio.Runner() as own:
        own.run(send())
        for work in (send, enter, look_enlisted, delivery.setup_infrastructure):
            with ThreadPoolExecutor(1) as threads, pytest.raises(ConfigurationError, match="one in each loop"):
                threads.submit(asyncio.run, work()).result(30)
        own.run(send())
        assert own.run(delivery.count()) == 2
        own.run(delivery.close())


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: on_sql(f"sqlite+aiosqlite:///{folder / 'app.db'}"),
        lambda _: AsyncDelayedDelivery("sales", InMemoryDelayedMessageStore()),
    ],
    ids=["sql", "memory"],
)
def test_what_is_closed_takes_nothing_until_it_is_entered_again(
    tmp_path: Path, make: Callable[[Path], AsyncDelayedDelivery]
) -> None:
    async def program() -> None:
        delivery = make(tmp_path)
        async with delivery:
            await delivery.send("billing", b"", delay=3600)
        for call in (
            delivery.send("billing", b"", delay=3600),
            delivery.count(),
            delivery.enlist(None).get("one"),
        ):
            with pytest.raises(ConfigurationError, match="is closed; make its calls before"):
                await call
        await delivery.health()
        await delivery.stop()
        await delivery.close()
        async with delivery:
            assert await delivery.count() == 1

    asyncio.run(program())


def test_a_forked_child_has_a_loop_of_its_own(tmp_path: Path) -> None:
    delivery = on_sql(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}")

    async def send() -> int:
        await delivery.send("billing", b"", delay=3600)
        return await delivery.count()

    with asyncio.Runner() as own:
        own.run(send())
        child = os.fork()
        if child == 0:
            status = 1
            with suppress(BaseException):
                asyncio.set_event_loop(None)
                asyncio._set_running_loop(None)
                status = 0 if asyncio.run(send()) == 2 else 2
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        own.run(delivery.close())


def test_what_could_not_begin_is_closed(tmp_path: Path) -> None:
    """Such as with tables of a newer release."""
    url = f"sqlite:///{tmp_path / 'app.db'}"
    blocking = SqlDelayedMessageStore(url)
    with DelayedDelivery("sales", blocking), blocking.engine.begin() as connection:
        connection.execute(text("UPDATE sales_delayed_version SET version_num = '9999'"))
    with pytest.raises(StoreSetupError), DelayedDelivery("sales", blocking):
        pass
    assert blocking.engine.pool.checkedin() == 0  # type: ignore[attr-defined]

    async def program() -> None:
        store = AsyncSqlDelayedMessageStore(url.replace("sqlite", "sqlite+aiosqlite", 1))
        with pytest.raises(StoreSetupError):
            await AsyncDelayedDelivery("sales", store).__aenter__()
        assert store.engine.sync_engine.pool.checkedin() == 0  # type: ignore[attr-defined]

    asyncio.run(program())


def test_mistakes_say_what_to_use(tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    with pytest.raises(ConfigurationError, match=r"write postgresql\+psycopg://, or with asyncio use AsyncSql"):
        SqlDelayedMessageStore("postgresql+asyncpg://localhost/app")
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
    with pytest.raises(ConfigurationError, match="AsyncDelayedDelivery"):
        SqlDelayedMessageStore(engine)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"not for asyncio; use mysql\+aiomysql://"):
        AsyncSqlDelayedMessageStore("mysql+pymysql://localhost/app")
    store = SqlDelayedMessageStore(f"sqlite:///{file}")
    with pytest.raises(ConfigurationError, match="takes a URL or an AsyncEngine, not Engine"):
        AsyncSqlDelayedMessageStore(store.engine)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"would block the event loop; .*AsyncSqlDelayedMessageStore"):
        AsyncDelayedDelivery("sales", store)


def test_a_missing_driver_of_the_dispatcher_s_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    store = AsyncSqlDelayedMessageStore("postgresql+asyncpg://localhost/app")
    with pytest.raises(MissingDependencyError, match="psycopg"):
        AsyncDelayedDelivery("sales", store, InMemoryTransport())


@pytest.mark.parametrize("driver", ON_POSTGRESQL)
@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        ({"database": "nowhere"}, 'database "nowhere" does not exist; create it with CREATE DATABASE'),
        ({"port": 1}, "check host and port in the URL"),
        ({"username": "nobody"}, "check user and password"),
    ],
)
def test_a_connection_that_cannot_be_has_the_same_remedy_by_each_driver(
    postgresql_url: str, driver: str, changed: dict[str, Any], remedy: str
) -> None:
    url = make_url(postgresql_url).set(drivername=f"postgresql+{driver}", **changed)

    async def count() -> None:
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url)) as delivery:
            await delivery.count()

    with pytest.raises(StoreUnavailableError) as caught:
        asyncio.run(count())
    assert remedy in str(caught.value)


def test_numbers_in_a_url_reach_asyncpg_as_such(postgresql_url: str) -> None:
    async def program() -> None:
        url = with_driver(postgresql_url, "asyncpg") + "?prepare_threshold=none&connect_timeout=5"
        async with AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(url), InMemoryTransport()) as delivery:
            for _ in range(3):
                await delivery.send("billing", b"", delay=3600)
            engine = delivery._store.engine  # type: ignore[union-attr]
            async with engine.connect() as connection:
                prepared = await connection.execute(text("SELECT count(*) FROM pg_prepared_statements"))
                assert prepared.scalar_one() <= 1

    asyncio.run(program())


FORKING = """
import asyncio, gc, os, sys
from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore, DelayedDeliverySettings

loop = asyncio.new_event_loop()
settings = DelayedDeliverySettings(store_timeout=10)
delivery = AsyncDelayedDelivery("sales", AsyncSqlDelayedMessageStore(sys.argv[1]), settings=settings)
loop.run_until_complete(delivery.send("billing", b"", delay=3600))
if os.fork() == 0:
    asyncio.new_event_loop().run_until_complete(delivery.send("billing", b"", delay=3600))
    gc.collect()
    os._exit(0)
os.wait()
loop.run_until_complete(delivery.send("billing", b"", delay=3600))
print(loop.run_until_complete(delivery.count()))
loop.run_until_complete(delivery.close())
"""


@pytest.mark.long_runs("psycopg", "aiomysql")
@pytest.mark.parametrize("url", ON_POSTGRESQL, indirect=True)
def test_a_forked_child_leaves_the_parent_s_connections_alone(url: str) -> None:
    ended = subprocess.run([sys.executable, "-c", FORKING, url], check=True, timeout=60, capture_output=True)
    assert ended.stdout == b"3\n"
