"""PostgreSQL stores for which few rows are worth a partition."""

from collections.abc import Iterator

import pytest

from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from tests.integration.partitions import ROWS
from tests.integration.sql_stores import opened


@pytest.fixture(autouse=True)
def few_rows_are_worth_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = PartitionLimits(fewest_rows=ROWS, smallest_table=0)
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", limits)


@pytest.fixture
def store(postgresql_url: str) -> Iterator[SqlDelayedMessageStore]:
    with opened(postgresql_url) as store:
        yield store


@pytest.fixture
def other(postgresql_url: str, store: SqlDelayedMessageStore) -> Iterator[SqlDelayedMessageStore]:
    with opened(postgresql_url) as other:
        yield other
