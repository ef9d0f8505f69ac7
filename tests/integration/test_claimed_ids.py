"""Sending under the id of a message that a dispatcher has, in a transaction of the caller's."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine

from delaystore.delivery import DelayedDelivery
from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.sql_stores import message, opened

AWHILE = 0.5
DEADLINE = 60


@pytest.fixture
def stores(request: pytest.FixtureRequest) -> Iterator[tuple[str, SqlDelayedMessageStore, SqlDelayedMessageStore]]:
    """A database's URL, and two stores there."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    with opened(url) as store, opened(url) as other:
        yield url, store, other


def send(url: str, store: SqlDelayedMessageStore, isolation: str | None) -> str:
    """Enlisted, once what is not in the way is sent; what was raised, and then what was done in the transaction."""
    engine = create_engine(url, **({} if isolation is None else {"isolation_level": isolation}))
    try:
        with engine.begin() as connection:
            enlisted = DelayedDelivery("sales", store).enlist(connection)
            enlisted.send("q", b"", delay=60, message_id="before")
            try:
                enlisted.send("q", b"again", delay=60, message_id="a")
                said = "stored"
            except (DuplicateMessageError, MessageBeingDispatchedError) as error:
                said = type(error).__name__
            enlisted.send("q", b"", delay=60, message_id="after")
    finally:
        engine.dispose()
    return said


@pytest.mark.parametrize("stores", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("isolation", [None, "REPEATABLE READ"])
def test_an_enlisted_send_waits_for_the_dispatcher(
    stores: tuple[str, SqlDelayedMessageStore, SqlDelayedMessageStore], isolation: str | None
) -> None:
    url, store, other = stores
    store.store(message(store.now(), message_id="a"))
    with ThreadPoolExecutor(1) as pool:
        with other.transaction() as dispatcher:
            (claimed,) = dispatcher.fetch_due(other.now(), 1)
            sent = pool.submit(send, url, store, isolation)
            with pytest.raises(TimeoutError):
                sent.result(AWHILE)
            assert dispatcher.remove(claimed)
        assert sent.result(DEADLINE) == "stored"
    assert sorted(each.message_id for each in store.list().messages) == ["a", "after", "before"]


@pytest.mark.parametrize("stores", ["postgresql", "mariadb", "sqlite"], indirect=True)
def test_an_enlisted_send_tells_what_stays_claimed_from_what_waits(
    stores: tuple[str, SqlDelayedMessageStore, SqlDelayedMessageStore],
) -> None:
    url, store, other = stores
    store.store(message(store.now(), message_id="a"))
    with other.transaction() as dispatcher:
        (claimed,) = dispatcher.fetch_due(other.now(), 1)
        assert send(url, store, None) == "MessageBeingDispatchedError"
        for name in ("before", "after"):
            store.cancel(name)
        assert dispatcher.increment_failure_count(claimed)
    assert send(url, store, None) == "DuplicateMessageError"
    with other.transaction() as dispatcher:  # the sender has left no lock
        assert len(dispatcher.fetch_due(other.now(), 10)) == 1
