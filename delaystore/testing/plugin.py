"""Fixtures for pytest, which finds them automatically; `-p no:delaystore` leaves them out.

pytest loads this module wherever delaystore is installed, so it imports nothing until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import URL, Engine

    from delaystore.settings import DelayedDeliverySettings
    from delaystore.stores import SqlDelayedMessageStore
    from delaystore.testing import AsyncTestDelivery, SettableClock, TestDelivery

LOCK_WAIT: Final = 5.0
"""Seconds for which the tables of an earlier test may be in use before they are dropped."""


@pytest.fixture
def clock() -> SettableClock:
    """The clock of the deliveries of this test; it stands at noon of 2027-01-01 UTC until the test moves it."""
    from delaystore.testing import SettableClock

    return SettableClock()


@pytest.fixture
def delayed_delivery_clock(clock: object) -> SettableClock:
    """The clock that deliveries go by; to be overridden where `clock` is a fixture of another kind."""
    from delaystore.testing import SettableClock

    if not isinstance(clock, SettableClock):
        raise pytest.UsageError(
            f"the fixture clock is a {type(clock).__name__}, and no delaystore.testing.SettableClock; "
            "override the fixture delayed_delivery_clock to return one"
        )
    return clock


@pytest.fixture
def delayed_delivery_endpoint() -> str:
    """The endpoint's name, `test`; to be overridden."""
    return "test"


@pytest.fixture
def delayed_delivery_settings() -> DelayedDeliverySettings | None:
    """The settings, None for the defaults; to be overridden."""
    return None


@pytest.fixture
def delayed_delivery(
    delayed_delivery_clock: SettableClock,
    delayed_delivery_endpoint: str,
    delayed_delivery_settings: DelayedDeliverySettings | None,
) -> Iterator[TestDelivery]:
    """A TestDelivery with a store in memory."""
    from delaystore.testing import TestDelivery

    delivery = TestDelivery(delayed_delivery_endpoint, clock=delayed_delivery_clock, settings=delayed_delivery_settings)
    yield delivery
    delivery.close()


@pytest.fixture
def async_delayed_delivery(
    delayed_delivery_clock: SettableClock,
    delayed_delivery_endpoint: str,
    delayed_delivery_settings: DelayedDeliverySettings | None,
) -> AsyncTestDelivery:
    """An AsyncTestDelivery, with a store in memory."""
    from delaystore.testing import AsyncTestDelivery

    return AsyncTestDelivery(
        delayed_delivery_endpoint, clock=delayed_delivery_clock, settings=delayed_delivery_settings
    )


@pytest.fixture
def delayed_delivery_database(tmp_path: Path) -> str | URL | Engine:
    """The URL or Engine of the database of `sql_delayed_delivery`, a SQLite file; to be overridden."""
    return f"sqlite:///{tmp_path / 'delaystore.db'}"


@pytest.fixture
def sql_delayed_delivery(
    delayed_delivery_database: str | URL | Engine,
    delayed_delivery_clock: SettableClock,
    delayed_delivery_endpoint: str,
    delayed_delivery_settings: DelayedDeliverySettings | None,
) -> Iterator[TestDelivery]:
    """A TestDelivery with a SQL store, whose tables are created again for the test, and stay after it."""
    from delaystore.stores import SqlDelayedMessageStore
    from delaystore.testing import TestDelivery

    store = SqlDelayedMessageStore(delayed_delivery_database, clock=delayed_delivery_clock)
    delivery = TestDelivery(
        delayed_delivery_endpoint, store, clock=delayed_delivery_clock, settings=delayed_delivery_settings
    )
    _remove_tables(store)  # not after the test, whose transaction may end after this fixture
    delivery.setup_infrastructure()  # tables cannot be made inside a transaction that enlists
    yield delivery
    delivery.close()


def _remove_tables(store: SqlDelayedMessageStore) -> None:
    from delaystore.errors import StoreUnavailableError

    try:
        store.remove_infrastructure(lock_wait=LOCK_WAIT)
    except StoreUnavailableError as error:
        problem = str(error)
    else:
        return
    pytest.fail(f"{problem} (an earlier test may have left it open)", pytrace=False)
