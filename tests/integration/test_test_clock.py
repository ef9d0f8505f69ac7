"""A SQL store that goes by a test's clock, on each database."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import inspect
from sqlalchemy.orm import Session

from delaystore import DelayedDelivery, ManagementOutcome, SqlDelayedMessageStore
from delaystore.errors import ConfigurationError
from delaystore.message import Position
from delaystore.testing import SettableClock, TestDelivery
from tests.integration.sql_stores import message, opened

LONG_AGO = datetime(1999, 12, 31, 23, tzinfo=UTC)
FAR_AHEAD = datetime(2101, 2, 3, tzinfo=UTC)


@pytest.fixture(params=[LONG_AGO, FAR_AHEAD], ids=["behind", "ahead"])
def clock(request: pytest.FixtureRequest) -> SettableClock:
    return SettableClock(request.param)


@pytest.fixture
def delivery(database_url: str, clock: SettableClock) -> Iterator[TestDelivery]:
    with closing(TestDelivery("sales", SqlDelayedMessageStore(database_url, clock=clock), clock=clock)) as delivery:
        yield delivery


def test_everything_goes_by_it(delivery: TestDelivery, clock: SettableClock) -> None:
    delivery.send("billing", b"pay me", delay=timedelta(days=3))
    cancelled = delivery.send("billing", b"never", delay=timedelta(days=1))
    moved = delivery.send("billing", b"later", delay=timedelta(days=1))
    assert delivery.cancel(cancelled) is ManagementOutcome.DONE
    assert delivery.reschedule(moved, delay=timedelta(days=4)) is ManagementOutcome.DONE
    clock.advance(days=3)
    assert [one.body for one in delivery.dispatch_due()] == [b"pay me"]
    delivery.assert_sent("billing", b"later", delay=timedelta(days=1))
    assert delivery.health().oldest_overdue is None
    clock.advance(days=1, minutes=1)
    assert delivery.health().oldest_overdue == timedelta(minutes=1)
    assert [one.body for one in delivery.dispatch_due()] == [b"later"]


def test_claims_and_retries_go_by_it(database_url: str, clock: SettableClock) -> None:
    with opened(database_url, clock=clock) as store:
        store.store(message(store.now()))
        with store.transaction() as tx:
            (claimed,) = tx.fetch_due(tx.now(), 10)
            assert tx.increment_failure_count(claimed)
        waiting = store.get(claimed.message_id)
        assert waiting is not None
        assert (waiting.failure_count, waiting.next_attempt) == (1, clock.now())
        assert store.next() == clock.now()


def test_an_enlisted_delay_goes_by_it(delivery: TestDelivery) -> None:
    delivery.setup_infrastructure()
    with Session(delivery.engine) as session:
        delivery.enlist(session).send("billing", b"pay me", delay=timedelta(days=3))
        session.commit()
    delivery.assert_sent("billing", delay=timedelta(days=3))


def test_no_search_is_spared_while_time_jumps(sqlite_url: str) -> None:
    with opened(sqlite_url, clock=SettableClock()) as store:
        scan = store._parts.scan
        scan.ended(None, 3600, Position(store.now(), "last"))
        assert scan.start() is None
        assert scan.until_full_scan() == timedelta(0)


def test_no_dispatcher_by_the_database_s_clock_sees_its_messages(database_url: str, clock: SettableClock) -> None:
    with opened(database_url, clock=clock) as timed, opened(database_url) as real:
        timed.store(message(LONG_AGO))
        assert real.fetch_due(FAR_AHEAD + timedelta(days=1), 10) == []
        real.store(message(LONG_AGO))
        assert (timed.count(), real.count()) == (1, 1)
        timed.remove_infrastructure()
        assert all("test_clock" not in name for name in inspect(real.engine).get_table_names())


@pytest.mark.parametrize("endpoint", ["sales", "s" * 40])
def test_its_table_is_refused_to_others(endpoint: str, postgresql_url: str) -> None:
    with closing(SqlDelayedMessageStore(postgresql_url, clock=SettableClock())) as timed:
        TestDelivery(endpoint, timed, clock=SettableClock())
        name = timed.table.name
        assert name.endswith("_test_clock")
    for table in (name, str(name).upper(), "mine_test_clock"):
        refused = pytest.raises(ConfigurationError, match="is for tests, which set a clock; name another table")
        with closing(SqlDelayedMessageStore(postgresql_url, table=table)) as store, refused:
            DelayedDelivery(endpoint, store)
    with closing(SqlDelayedMessageStore(postgresql_url, table=name, clock=SettableClock())) as again:
        TestDelivery(endpoint, again, clock=SettableClock())
        assert again.table.name == name
