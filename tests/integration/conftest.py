"""SQL stores on each database."""

from collections.abc import Iterator

import pytest

from delaystore.stores import SqlDelayedMessageStore
from tests.integration.sql_stores import opened


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def store(database_url: str) -> Iterator[SqlDelayedMessageStore]:
    """A store with its tables."""
    with opened(database_url) as store:
        yield store


@pytest.fixture
def other(database_url: str, store: SqlDelayedMessageStore) -> Iterator[SqlDelayedMessageStore]:
    """The same messages, as another process would see them."""
    with opened(database_url) as other:
        yield other
