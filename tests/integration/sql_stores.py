"""The databases that the SQL store's tests run on, and stores on them."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from delaystore.message import DelayedMessage, new_message_id
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def store(database_url: str) -> Iterator[SqlDelayedMessageStore]:
    yield from opened(database_url)


@pytest.fixture
def other(database_url: str, store: SqlDelayedMessageStore) -> Iterator[SqlDelayedMessageStore]:
    """The same messages, as another process would see them."""
    yield from opened(database_url)


def opened(url: str, **options: Any) -> Iterator[SqlDelayedMessageStore]:
    store = SqlDelayedMessageStore(url, **options)
    store.initialize("sales", TransactionMode.NONE)
    store.setup_infrastructure()
    try:
        yield store
    finally:
        store.close()


def message(now: datetime, seconds: float = 0, message_id: str | None = None, **fields: Any) -> DelayedMessage:
    values: dict[str, Any] = {"destination": "billing", "body": b"pay", **fields}
    due_time = now + timedelta(seconds=seconds)
    return DelayedMessage(message_id=message_id or new_message_id(), due_time=due_time, **values)
