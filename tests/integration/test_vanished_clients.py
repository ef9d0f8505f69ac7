"""Clients that vanish without a word, as hosts do that lose their power or their network."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from delaystore.errors import StoreUnavailableError
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from tests.dispatching import wait_until
from tests.integration.sql_stores import message, opened
from tests.servers.proxy import Proxy


@pytest.fixture(params=["postgresql", "mysql"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlDelayedMessageStore]:
    """A store in a database that lets a dispatcher say nothing for two seconds."""
    monkeypatch.setattr(f"delaystore.stores.sql.dialects.{request.param}.LONGEST_IDLE", 2)
    fixture = {"postgresql": "postgresql_url", "mysql": "mariadb_url"}[request.param]
    with opened(request.getfixturevalue(fixture)) as store:
        yield store


@pytest.mark.long_runs("mysql")
def test_what_a_vanished_dispatcher_has_claimed_is_free_again(store: SqlDelayedMessageStore) -> None:
    store.store(message(store.now(), -1, "claimed"))
    address = store.engine.url
    with Proxy(address.port or 0) as proxy:
        vanishing = SqlDelayedMessageStore(address.set(port=proxy.port))
        vanishing.initialize("sales", TransactionMode.NONE)
        with pytest.raises(StoreUnavailableError), vanishing.transaction() as transaction:
            assert transaction.fetch_due(store.now(), 5)
            proxy.swallow()
            assert store.cancel("claimed") is ManagementOutcome.BEING_DISPATCHED
            wait_until(lambda: store.cancel("claimed") is ManagementOutcome.DONE)
            proxy.cut()
        vanishing.close()


def test_other_transactions_may_be_silent_for_as_long_as_they_like(postgresql_url: str) -> None:
    limit = text("SHOW idle_in_transaction_session_timeout")
    with opened(postgresql_url) as store:
        with store.transaction() as transaction:
            transaction.store(message(store.now(), -1))
            assert transaction.connection.execute(limit).scalar() == "0"
        with store.transaction() as transaction:
            assert transaction.fetch_due(store.now(), 5)
            assert transaction.connection.execute(limit).scalar() == "5min"
        with store.transaction() as transaction:
            assert transaction.connection.execute(limit).scalar() == "0"
        with store.engine.begin() as connection:
            assert store.enlist(connection).fetch_due(store.now(), 5)
            assert connection.execute(limit).scalar() == "0"


def test_the_server_notices_a_client_that_is_gone(postgresql_url: str) -> None:
    asked: dict[str, Any] = {"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}
    with opened(postgresql_url) as store, store.engine.connect() as connection:
        for name, value in asked.items():
            assert connection.execute(text(f"SHOW {name}")).scalar() == value
        assert connection.execute(text("SHOW tcp_user_timeout")).scalar() in ("60000", "60000ms", "1min", "60s")


def test_the_connection_that_has_a_lock_stays_though_it_says_nothing(mariadb_url: str) -> None:
    with opened(mariadb_url) as store, store.engine.connect() as connection:
        waits = text("SELECT @@SESSION.wait_timeout")
        assert connection.execute(waits).scalar() == 300
        release = store._dialect.take_lock(connection, "a lock", "somebody")
        assert release is not None
        assert connection.execute(waits).scalar() == 604800
        release()
        connection.detach()
