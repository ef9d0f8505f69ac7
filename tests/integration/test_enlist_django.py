"""Enlisting in Django's transactions, with the databases that Django and the store have in common."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import django
import pymysql
import pytest
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy import make_url

from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, StoreError
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports import InMemoryTransport
from tests.dispatching import wait_until
from tests.integration.test_enlist_document import BLOCKS

ALIAS = "delaystore_tests"
ENGINES = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite3"}


@pytest.fixture(params=["postgresql_url", "mariadb_url", "sqlite_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def shop(url: str) -> Iterator[Any]:
    """Django's connection to the database of `url`, with a table of its own in it."""
    pymysql.install_as_MySQLdb()
    if not settings.configured:
        settings.configure()
        django.setup()
    parsed = make_url(url)
    database = {
        "ENGINE": f"django.db.backends.{ENGINES[parsed.get_backend_name()]}",
        "NAME": parsed.database,
        "USER": parsed.username,
        "PASSWORD": parsed.password,
        "HOST": parsed.host,
        "PORT": parsed.port,
    }
    connections.settings[ALIAS] = connections.configure_settings({"default": {}, ALIAS: database})[ALIAS]
    shop = connections[ALIAS]
    execute(shop, "CREATE TABLE orders (id INTEGER, number VARCHAR(20))")
    yield shop
    shop.close()
    del connections[ALIAS]
    del connections.settings[ALIAS]


@pytest.fixture
def delivery(url: str) -> Iterator[DelayedDelivery]:
    with DelayedDelivery("sales", SqlDelayedMessageStore(url), InMemoryTransport(auto_declare=True)) as delivery:
        yield delivery


def execute(shop: Any, statement: str) -> None:
    with shop.cursor() as cursor:
        cursor.execute(statement)


def orders(shop: Any) -> int:
    with shop.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orders")
        return int(cursor.fetchone()[0])


def test_an_atomic_block_with_savepoints(shop: Any, delivery: DelayedDelivery) -> None:
    with transaction.atomic(using=ALIAS):
        execute(shop, "INSERT INTO orders (id) VALUES (1)")
        enlisted = delivery.enlist(shop)
        kept = enlisted.send("billing", "ü".encode(), delay=60)
        with pytest.raises(ValueError, match="declined"), transaction.atomic(using=ALIAS):
            execute(shop, "INSERT INTO orders (id) VALUES (2)")
            enlisted.send("billing", b"", delay=60)
            assert enlisted.cancel(kept) is ManagementOutcome.DONE
            assert enlisted.get(kept) is None
            raise ValueError("the card was declined")
        assert enlisted.reschedule(kept, delay=120) is ManagementOutcome.DONE
        found = enlisted.get(kept)
        assert delivery.count() == 0
    assert orders(shop) == 1
    assert delivery.get(kept) == found
    assert shop.get_autocommit()


def test_a_rolled_back_block_has_sent_and_cancelled_nothing(shop: Any, delivery: DelayedDelivery) -> None:
    reminder = delivery.send("billing", b"", delay=60)
    with pytest.raises(ValueError, match="declined"), transaction.atomic(using=ALIAS):
        execute(shop, "INSERT INTO orders (id) VALUES (1)")
        delivery.enlist(shop).cancel(reminder)
        delivery.enlist(shop).send("billing", b"", delay=60)
        raise ValueError("the card was declined")
    assert [message.message_id for message in delivery.list().messages] == [reminder]
    assert orders(shop) == 0


def test_the_commit_wakes_the_dispatcher(shop: Any, delivery: DelayedDelivery) -> None:
    """Also where what was sent first went with its savepoint."""
    woken: list[Any] = []
    delivery._wake_up = woken.append  # type: ignore[method-assign]
    with transaction.atomic(using=ALIAS):
        enlisted = delivery.enlist(shop)
        with pytest.raises(ValueError, match="declined"), transaction.atomic(using=ALIAS):
            enlisted.send("billing", b"", delay=0)
            raise ValueError("the card was declined")
        enlisted.send("billing", b"", delay=0)
        assert woken == []
    assert len(woken) == 1
    wait_until(lambda: delivery.count() == 0, "it is forwarded")


def test_without_an_atomic_block_it_is_refused(shop: Any, delivery: DelayedDelivery) -> None:
    with pytest.raises(ConfigurationError, match=r"enlist it inside transaction\.atomic\(\)"):
        delivery.enlist(shop)
    with transaction.atomic(using=ALIAS):
        enlisted = delivery.enlist(shop)
    with pytest.raises(ConfigurationError, match=r"enlist it inside transaction\.atomic\(\)"):
        enlisted.send("billing", b"", delay=60)
    with transaction.atomic(using=ALIAS):
        enlisted.send("billing", b"", delay=60)
        transaction.set_rollback(True, using=ALIAS)
        with pytest.raises(StoreError, match="will be rolled back"):
            enlisted.send("billing", b"", delay=60)
    assert delivery.count() == 0


def test_the_documents_example_runs(delivery: DelayedDelivery, shop: Any) -> None:
    """With django.db.connection, which stands for the one behind it."""
    (program,) = (block for block in BLOCKS if "atomic" in block)
    names: dict[str, Any] = {"delivery": delivery, "timedelta": timedelta}
    connections.settings["default"], before = connections.settings[ALIAS], connections.settings.get("default")
    try:
        exec(program, names)
        names["place_order"]("A-1")
    finally:
        connections["default"].close()
        del connections["default"]
        connections.settings["default"] = before
    assert (orders(shop), delivery.count()) == (1, 1)
