"""Loads into stores that others wrote: at once, with the guarantee that is left."""

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from delaystore.bulk.columns import STAGED
from delaystore.bulk.options import OnDuplicate, StoreOptions, WriteOptions
from delaystore.bulk.staging import LoadKey, Staging, _stores, cleanup, list_loads, load_status, open_staging
from delaystore.errors import ConfigurationError, UnknownSchemeError
from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore
from tests.integration.loading import batch, rows

OPTIONS = StoreOptions(store="redis://localhost", endpoint="sales")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> InMemoryDelayedMessageStore:
    """What the URL of somebody's store opens."""
    store = InMemoryDelayedMessageStore()
    store.initialize("sales", TransactionMode.NONE)
    monkeypatch.setattr(_stores, "open_store", lambda url: store)
    return store


def stage(staging: Staging, messages: list[DelayedMessage]) -> _stores.StagedAttempt:
    travelled: Staging = pickle.loads(pickle.dumps(staging))
    with travelled.attempt() as sink:
        sink.write(batch(messages))
        return sink.finish()


def test_messages_are_stored_at_once(store: InMemoryDelayedMessageStore) -> None:
    staging = open_staging(OPTIONS, 600)
    assert staging.begin(LoadKey("one")) is None
    messages = rows(2500, headers={"a": b"\0"}, properties={"priority": 1})
    attempts = [stage(staging, messages)]
    assert store.list(limit=5000).messages == messages
    finished = staging.promote(attempts, OnDuplicate.IGNORE)
    assert (finished.stored, finished.skipped) == (2500, 0)
    staging.renew()
    staging.discard()
    assert store.count() == 2500


def test_a_repeated_task_adds_nothing(store: InMemoryDelayedMessageStore) -> None:
    staging = open_staging(OPTIONS, 600)
    staging.join(LoadKey("query", 3))
    stage(staging, rows(3))
    finished = staging.promote([stage(staging, rows(5))], OnDuplicate.IGNORE)
    assert (finished.stored, finished.skipped) == (2, 3)
    without_marks = [replace(one, due_time=one.next_attempt) for one in store.list().messages]
    assert without_marks == rows(5)


@pytest.mark.parametrize("on_duplicate", [OnDuplicate.ERROR, OnDuplicate.REPLACE])
def test_what_would_need_a_way_back_is_refused(store: InMemoryDelayedMessageStore, on_duplicate: OnDuplicate) -> None:
    with pytest.raises(ConfigurationError, match="set the option onDuplicate to ignore if you want that"):
        open_staging(WriteOptions(store="redis://localhost", endpoint="sales", on_duplicate=on_duplicate), 600)
    staging = open_staging(OPTIONS, 600)
    staging.begin(LoadKey("one"))
    with pytest.raises(ConfigurationError, match="onDuplicate to ignore"):
        staging.promote([], on_duplicate)


def test_an_attempt_of_nothing_stores_nothing(store: InMemoryDelayedMessageStore) -> None:
    staging = open_staging(OPTIONS, 600)
    with staging.attempt() as sink:
        sink.write(pa.RecordBatch.from_pylist([], STAGED))
        assert sink.finish().count == 0


def test_the_guarantee_is_said(store: InMemoryDelayedMessageStore) -> None:
    assert "not all or nothing" in open_staging(OPTIONS, 600).guarantee
    assert "exactly once" in open_staging(StoreOptions(store="sqlite:///app.db", endpoint="sales"), 600).guarantee


@pytest.mark.usefixtures("store")
def test_there_is_nothing_to_list_or_clean_up() -> None:
    assert list_loads(OPTIONS) == []
    assert load_status(OPTIONS, "one") is None
    assert cleanup(OPTIONS).tables == ()


@pytest.mark.parametrize("on_duplicate", OnDuplicate)
def test_an_unknown_store_is_named(on_duplicate: OnDuplicate) -> None:
    with pytest.raises(UnknownSchemeError, match="redis"):
        open_staging(WriteOptions(store="redis://localhost", endpoint="sales", on_duplicate=on_duplicate), 600)


def test_a_table_cannot_be_chosen(store: InMemoryDelayedMessageStore) -> None:
    with pytest.raises(ConfigurationError, match="schema and table are for SQL stores"):
        open_staging(StoreOptions(store="redis://localhost", endpoint="sales", table="t"), 600)
