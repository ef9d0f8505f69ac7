from functools import partial
from typing import ClassVar

import pytest

from delaystore.testing import Outage, TransportCapabilities, TransportConformance, TransportFactory
from delaystore.transports import SqlQueueTransport
from tests.conformance.outages import outage_of
from tests.servers import PostgreSQL


class TestSqliteQueue(TransportConformance):
    capabilities: ClassVar = TransportCapabilities(open_queues=True)

    @pytest.fixture
    def transport_factory(self, sqlite_url: str) -> TransportFactory:
        return partial(SqlQueueTransport, sqlite_url)


class TestPostgreSQLQueue(TransportConformance):
    capabilities: ClassVar = TransportCapabilities(outages=True, open_queues=True)

    @pytest.fixture
    def transport_factory(self, private_postgresql: PostgreSQL) -> TransportFactory:
        return partial(SqlQueueTransport, private_postgresql.create_database())

    @pytest.fixture
    def outage(self, private_postgresql: PostgreSQL) -> Outage:
        return outage_of(private_postgresql)


class TestMariaDBQueue(TransportConformance):
    capabilities: ClassVar = TransportCapabilities(open_queues=True)

    @pytest.fixture
    def transport_factory(self, mariadb_url: str) -> TransportFactory:
        return partial(SqlQueueTransport, mariadb_url)
