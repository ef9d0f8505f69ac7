from functools import partial

import pytest

from delaystore.testing import TransportConformance
from delaystore.testing.kit.transport import TransportFactory
from delaystore.transports import SqlQueueTransport


class TestSqliteQueue(TransportConformance):
    @pytest.fixture
    def transport_factory(self, sqlite_url: str) -> TransportFactory:
        return partial(SqlQueueTransport, sqlite_url)


class TestPostgreSQLQueue(TransportConformance):
    @pytest.fixture
    def transport_factory(self, postgresql_url: str) -> TransportFactory:
        return partial(SqlQueueTransport, postgresql_url)


class TestMariaDBQueue(TransportConformance):
    @pytest.fixture
    def transport_factory(self, mariadb_url: str) -> TransportFactory:
        return partial(SqlQueueTransport, mariadb_url)
