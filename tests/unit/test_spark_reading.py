"""Spark's view of stores that are not SQL's, without Spark."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from delaystore.bulk.options import StoreOptions
from delaystore.bulk.spark import _tables as stores
from delaystore.bulk.spark._reading import SCHEMA, arrow_schema, read_pages
from delaystore.bulk.spark._tables import open_readable
from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore, SqlDelayedMessageStore

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)


def many(count: int) -> Iterator[DelayedMessage]:
    """Messages m00000, m00001..., due a second apart from noon on."""
    for number in range(count):
        due_time = NOON + timedelta(seconds=number)
        yield DelayedMessage(message_id=f"m{number:05}", destination="q", due_time=due_time, body=b"%d" % number)


def test_other_stores_are_read_page_by_page() -> None:
    store = InMemoryDelayedMessageStore()
    store.initialize("sales", TransactionMode.NONE)
    store.store_many(many(2500))
    batches = list(read_pages(store, arrow_schema(SCHEMA)))
    assert [batch.num_rows for batch in batches] == [1000, 1000, 500]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(row["message_id"] for row in rows) == [f"m{number:05}" for number in range(2500)]
    assert json.dumps(rows[0]["body"].decode()) == '"0"'


def test_a_store_that_others_wrote_is_opened_for_each_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store in memory stands for theirs, so it must not be known as what it is."""
    memory: dict[str, object] = {}
    monkeypatch.setattr(stores, "open_store", lambda url: InMemoryDelayedMessageStore(memory=memory))
    monkeypatch.setattr(stores, "InMemoryDelayedMessageStore", SqlDelayedMessageStore)
    sales, mail = (open_readable(StoreOptions(store="theirs://there", endpoint=name)) for name in ("sales", "mail"))
    assert isinstance(sales, InMemoryDelayedMessageStore)
    assert isinstance(mail, InMemoryDelayedMessageStore)
    sales.store_many(many(3))
    assert (sales.count(), mail.count()) == (3, 0)
