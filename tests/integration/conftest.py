"""SQL stores on each database."""

from collections.abc import Iterator
from typing import Any

import pytest

from delaystore.cascades import Management
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports.rabbitmq.parameters import broker_from_url
from tests.integration.cascades import channel_to
from tests.integration.cli import CommandLine
from tests.integration.sql_stores import opened
from tests.servers import RabbitMQVhosts


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


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line in this process, with no environment of its own."""
    return CommandLine(capsys, {})


@pytest.fixture
def channel(rabbitmq_url: str) -> Iterator[Any]:
    """A channel in confirm mode to an empty virtual host."""
    with channel_to(rabbitmq_url) as channel:
        yield channel


@pytest.fixture
def management(rabbitmq: RabbitMQVhosts, rabbitmq_url: str) -> Iterator[Management]:
    """The management API for an empty virtual host."""
    assert rabbitmq.management_url is not None
    with Management(rabbitmq.management_url, broker_from_url(rabbitmq_url)) as management:
        yield management
