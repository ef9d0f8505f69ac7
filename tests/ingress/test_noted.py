"""What publishers ask for by an ingress, in the audit trail; and what waits while it is not done."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.settings import TransactionMode
from delaystore.stores import documents
from tests.faults.patience import wait_until
from tests.ingress.ground import ENDPOINT, LONG, QUEUE, Ground, await_settled, endpoint, running
from tests.integration.test_sql_operating import downgrade

OLD: Final = datetime(2040, 1, 31, 9, tzinfo=UTC)
PUBLISHER: Final = f"a publisher, by the ingress of {QUEUE}"


def clear(ground: Ground, saga: str) -> None:
    ground.publish(b"", headers={"NServiceBus.ClearTimeouts": "True", "NServiceBus.SagaId": saga})


@pytest.mark.parametrize("audit", ["all", "operators"])
def test_a_cancel_and_a_replacement_are_noted_as_a_programs_with_all_only(
    ground: Ground, database_url: str, audit: str
) -> None:
    saga = str(uuid4())
    with endpoint(database_url, audit=audit) as delivery:
        for name in ("a", f"{saga}/1", f"{saga}/2"):
            delivery.send("billing", b"old", at=OLD, message_id=name)
        with running(delivery, ground.url, on_duplicate="replace") as ingress:
            ground.publish(b"new", delay=LONG, message_id="a")
            await_settled(ingress, 1)
        replacing = delivery.get("a")
        with running(delivery, ground.url, forms=["nservicebus"]) as ingress:
            clear(ground, saga)
            await_settled(ingress, 1)
        assert replacing is not None
        assert (replacing.body, delivery.count()) == (b"new", 1)
        noted = {each.message_id: each for each in delivery.operations.changes()}
        if audit == "operators":
            assert noted == {}
            return
        assert noted.keys() == {"a", f"{saga}/1", f"{saga}/2"}
        assert {(each.by, each.way, each.count) for each in noted.values()} == {(PUBLISHER, "ingress", 1)}
        assert {each.old_due_time for each in noted.values()} == {OLD}
        assert {name: each.action for name, each in noted.items()} == {
            "a": "replace",
            f"{saga}/1": "cancel",
            f"{saga}/2": "cancel",
        }
        by_program = entries_of_a_program(delivery, replacing.due_time)
        for name, each in zip(("a", f"{saga}/1"), by_program, strict=True):
            ours, theirs = noted[name], each
            said = replace(ours, at=OLD, by="", way=None, about="")
            assert said == replace(theirs, at=OLD, by="", way=None, about="", key=None)


def entries_of_a_program(delivery: DelayedDelivery, due_time: datetime) -> tuple[object, object]:
    """What `send` with a key, and `cancel`, note of messages like those above."""
    noted = {each.message_id: each for each in delivery.operations.changes()}
    (cancelled,) = [name for name in noted if name is not None and name.endswith("/1")]
    delivery.cancel("a")
    delivery.send("billing", b"old", at=OLD, message_id="a", key="k")
    delivery.send("billing", b"new", at=due_time, message_id="a", key="k", on_key="replace")
    replaced = delivery.operations.changes(1)[0]
    delivery.send("billing", b"old", at=OLD, message_id=cancelled)
    delivery.cancel(cancelled)
    return replaced, delivery.operations.changes(1)[0]


@contextmanager
def refusing(url: str, body: bytes) -> Iterator[None]:
    """The database refuses messages of that body."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(
            text(
                f"CREATE TRIGGER refuse BEFORE INSERT ON {ENDPOINT}_delayed WHEN NEW.body = x'{body.hex()}' "
                "BEGIN SELECT RAISE(ABORT, 'not now'); END"
            )
        )
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP TRIGGER refuse"))
        engine.dispose()


def test_the_earlier_message_waits_until_the_new_one_does(ground: Ground, sqlite_url: str) -> None:
    with (
        endpoint(sqlite_url, audit="all") as delivery,
        running(delivery, ground.url, on_duplicate="replace") as ingress,
    ):
        ground.publish(b"old", delay=LONG, message_id="a")
        await_settled(ingress, 1)
        with refusing(sqlite_url, b"new"):
            ground.publish(b"new", delay=LONG, message_id="a")
            wait_until(lambda: ingress.health().breakers["intake"] != "disarmed", "the database refuses it")
            waiting = delivery.get("a")
            assert waiting is not None
            assert waiting.body == b"old"
            assert list(delivery.operations.changes()) == []
        await_settled(ingress, 2)
        replaced = delivery.get("a")
        assert replaced is not None
        assert replaced.body == b"new"
        (entry,) = delivery.operations.changes()
        assert (entry.action, entry.new_due_time) == ("replace", replaced.due_time)
        assert entry.old_due_time == waiting.next_attempt


def test_a_repetition_changes_neither_the_due_time_that_is_shown_nor_the_audit_trail(
    ground: Ground, sqlite_url: str
) -> None:
    shown = list[object]()
    with (
        endpoint(sqlite_url, audit="all") as delivery,
        running(delivery, ground.url, on_duplicate="replace") as ingress,
    ):
        for number in range(3):
            ground.publish(b"same", delay=LONG, message_id="a")
            await_settled(ingress, number + 1)
            waiting = delivery.get("a")
            assert waiting is not None
            shown.append(documents.waiting(waiting))
        assert shown == shown[:1] * 3
        assert list(delivery.operations.changes()) == []
        ground.publish(b"new", delay=LONG, message_id="a")
        await_settled(ingress, 4)
        (entry,) = delivery.operations.changes()
        assert documents.instant(entry.old_due_time) == documents.waiting(waiting)["due_time"]


def test_on_tables_without_an_audit_trail_a_saga_is_cleared(ground: Ground, sqlite_url: str) -> None:
    saga = str(uuid4())
    store = SqlDelayedMessageStore(sqlite_url)
    store.initialize(ENDPOINT, TransactionMode.NONE)
    store.setup_infrastructure()
    downgrade(store)
    store.close()
    with endpoint(sqlite_url, automatic_setup=False) as delivery:
        delivery.send("billing", b"", delay=timedelta(hours=1), message_id=f"{saga}/1")
        assert not delivery.operations.are_available
        with running(delivery, ground.url, forms=["nservicebus"]) as ingress:
            clear(ground, saga)
            await_settled(ingress, 1)
        assert delivery.count() == 0
