"""The audit trail: the same change by every way, kills between change and commit, earlier tables, retention."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typing_extensions import override

from delaystore import (
    AsyncDelayedDelivery,
    AsyncSqlDelayedMessageStore,
    DelayedDelivery,
    SqlDelayedMessageStore,
)
from delaystore.errors import ConfigurationError, StoreError
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage
from delaystore.operations import Operations
from delaystore.operations.changes import (
    CancelRequest,
    MessageRequest,
    RescheduleRequest,
    audited,
    reschedule_action,
)
from delaystore.server.web import app
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.records import AuditEntry, Change, ChangeAction, Way
from tests.integration.cli import CommandLine
from tests.web.pages import Browser, browser
from tests.web.test_pages import post

OLD, NEW = datetime(2040, 1, 31, 9, tzinfo=UTC), datetime(2041, 1, 31, 9, tzinfo=UTC)
DAY = timedelta(days=1)
ALL = DelayedDeliverySettings(audit="all")
Ways = dict[str, Callable[[str, datetime | None], Any]]
NOW = datetime(2042, 1, 31, 9, tzinfo=UTC)
"""Stands for a message that is sent now."""


@pytest.fixture
def delivery(sqlite_url: str) -> Iterator[DelayedDelivery]:
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url), None, ALL) as delivery:
        yield delivery


@pytest.fixture
def environment(sqlite_url: str) -> dict[str, str]:
    return {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales", "DELAYSTORE_ACTOR": "ada"}


@pytest.fixture
def ways(delivery: DelayedDelivery, sqlite_url: str, run: CommandLine) -> Ways:
    """What cancels the message of an id, or, with a time, reschedules it, or sends it NOW, by the name of each way."""
    page = browser(app(delivery))

    def changed(place: Any, message_id: str, at: datetime | None) -> Any:
        if at is None:
            return place.cancel(message_id)
        return place.send_now(message_id) if at == NOW else place.reschedule(message_id, at=at)

    def requested(at: datetime | None, **named: Any) -> MessageRequest:
        if at is None:
            return CancelRequest(**named)
        if at == NOW:
            return RescheduleRequest(**named, at=delivery.operations.now(), action=reschedule_action(0))
        return RescheduleRequest(**named, at=at)

    def by_program(message_id: str, at: datetime | None) -> None:
        changed(delivery, message_id, at)

    def by_delay(message_id: str, at: datetime | None) -> None:
        _ = delivery.reschedule(message_id, delay=0) if at == NOW else changed(delivery, message_id, at)

    def by_transaction(message_id: str, at: datetime | None) -> None:
        with delivery._store.engine.begin() as connection:  # type: ignore[attr-defined]
            changed(delivery.enlist(connection), message_id, at)

    def by_program_async(message_id: str, at: datetime | None) -> None:
        async def change() -> None:
            store = AsyncSqlDelayedMessageStore(sqlite_url.replace("sqlite:", "sqlite+aiosqlite:"))
            async with AsyncDelayedDelivery("sales", store, None, ALL) as other:
                await changed(other, message_id, at)

        asyncio.run(change())

    def by_integration(message_id: str, at: datetime | None) -> None:
        changed(delivery.changes_as(Way.CELERY), message_id, at)

    def by_ingress(message_id: str, at: datetime | None) -> None:
        delivery.changes_as(Way.INGRESS, "a publisher").do_all([requested(at, message_id=message_id)])

    def by_operations(message_id: str, at: datetime | None) -> None:
        operations = delivery.operations
        if at == NOW:
            operations.send_now(message_id)
        else:
            _ = operations.cancel_one(message_id) if at is None else operations.reschedule_one(message_id, at=at)

    def by_requests(message_id: str, at: datetime | None) -> None:
        operations = delivery.operations.acting_as(way=Way.CONTROL)
        operations.do_all([requested(at, message_id=message_id, by="a program, by the control queue")])

    def by_command(message_id: str, at: datetime | None) -> None:
        when = ("--delay", "0s") if at == NOW else ("--at", str(at))
        assert run(*(("cancel", message_id) if at is None else ("reschedule", message_id, *when))).code == 0

    def by_page(message_id: str, at: datetime | None) -> None:
        named = {} if at in (None, NOW) else {"at": f"{at:%Y-%m-%dT%H:%M}"}
        what = "cancel" if at is None else "send-now" if at == NOW else "reschedule"
        assert post(page, f"/message/{what}", f"/message?id={message_id}", id=message_id, **named).status_code == 303

    def by_api(message_id: str, at: datetime | None) -> None:
        assert _by_api(page, message_id, at) == 200

    return {
        "program": by_program,
        "delay": by_delay,
        "transaction": by_transaction,
        "async": by_program_async,
        "celery": by_integration,
        "ingress": by_ingress,
        "operations": by_operations,
        "control": by_requests,
        "cli": by_command,
        "web": by_page,
        "api": by_api,
    }


def _by_api(page: Browser, message_id: str, at: datetime | None) -> int:
    path = f"/api/v1/messages/{message_id}"
    if at is None:
        return page.request("DELETE", path).status_code
    return page.request("PATCH", path, json={"delay": 0} if at == NOW else {"at": str(at)}).status_code


def a_message(message_id: str, **fields: Any) -> DelayedMessage:
    return DelayedMessage(message_id=message_id, destination="billing", due_time=OLD, body=b"x", **fields)


def entry_of(operations: Operations) -> AuditEntry:
    return operations.changes(1)[0]


@pytest.mark.parametrize("at", [None, NEW, NOW], ids=["cancel", "reschedule", "send-now"])
def test_one_change_has_one_form_by_whichever_way_it_is_made(
    delivery: DelayedDelivery, ways: Ways, at: datetime | None
) -> None:
    found: dict[str, AuditEntry] = {}
    for number, (name, change) in enumerate(ways.items(), 1):
        delivery.send("billing", b"x", at=OLD, message_id="a", key="k")
        change("a", at)
        assert len(delivery.operations.changes()) == number, name
        found[name] = entry_of(delivery.operations)
        delivery._store.cancel("a")  # type: ignore[attr-defined]
    if at == NOW:  # each at its own time, which the words name, too
        wrong = {name: each for name, each in found.items() if abs((each.new_due_time or OLD) - each.at) > DAY}
        assert not wrong
        found = {name: replace(each, new_due_time=NOW, about="") for name, each in found.items()}
    alike = {replace(each, at=OLD, by="", way=None) for each in found.values()}
    assert len(alike) == 1, found
    (entry,) = alike
    assert (entry.action, entry.count) == ("cancel" if at is None else "send-now" if at == NOW else "reschedule", 1)
    assert (entry.message_id, entry.key, entry.destination) == ("a", "k", "billing")
    assert (entry.old_due_time, entry.new_due_time) == (OLD, at)
    expected = {name: name for name in found} | dict.fromkeys(("transaction", "async", "delay"), "program")
    assert {name: each.way for name, each in found.items()} == expected
    assert found["cli"].by == "ada"


def test_operators_are_noted_by_default_and_programs_are_not(sqlite_url: str) -> None:
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as delivery:
        for name in "abcd":
            delivery.send("billing", b"x", at=OLD, message_id=name, key=name)
        delivery.send("billing", b"x", at=NEW, message_id="new a", key="a", on_key="replace")
        delivery.reschedule("b", at=NEW)
        delivery.changes_as(Way.CELERY).cancel("c")
        delivery.send("billing", b"x", at=OLD, message_id="c")
        delivery.operations.acting_as(way=Way.INGRESS).cancel_one("c")
        assert list(delivery.operations.changes()) == []
        delivery.changes_as(Way.DJANGO, "ada").cancel("b")
        delivery.operations.send_now("d")
        assert {(each.way, each.action, each.message_id) for each in delivery.operations.changes()} == {
            ("operations", "send-now", "d"),
            ("django", "cancel", "b"),
        }


def test_the_api_notes_what_its_users_replace(sqlite_url: str) -> None:
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as delivery:
        page = browser(app(delivery))
        for name, at in (("a", OLD), ("b", NEW)):
            asked = {"destination": "billing", "body": "x", "at": str(at), "message_id": name, "key": "k"}
            assert page.request("POST", "/api/v1/messages", json={**asked, "on_key": "replace"}).status_code == 201
        (entry,) = delivery.operations.changes()
        assert (entry.way, entry.action, entry.message_id) == ("api", "replace", "a")
        assert (entry.old_due_time, entry.new_due_time) == (OLD, NEW)


@pytest.mark.parametrize(("delay", "action"), [(0, "send-now"), (60, "reschedule")])
def test_an_operation_that_sends_now_says_so(sqlite_url: str, delay: float, action: str) -> None:
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as delivery:
        delivery.send("billing", b"x", at=OLD)
        begun = delivery.operations.begin_reschedule(MessageFilter(destination="billing"), delay=delay)
    with DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url)) as delivery:
        delivery.operations.run(begun.operation_id)
        assert [each.action for each in delivery.operations.changes()] == [action, action]


def test_all_has_what_messages_replace_too(delivery: DelayedDelivery) -> None:
    delivery.send("billing", b"x", at=OLD, message_id="a", key="k", on_key="replace")
    delivery.send("billing", b"x", at=NEW, message_id="b", key="k", on_key="replace")
    delivery.send_many([a_message("c", key="k")], on_key="replace")
    with delivery._store.engine.begin() as connection:  # type: ignore[attr-defined]
        delivery.enlist(connection).send("billing", b"x", at=NEW, message_id="d", key="k", on_key="debounce")
    assert [(each.action, each.message_id, each.key) for each in delivery.operations.changes()] == [
        ("replace", "c", "k"),
        ("replace", "b", "k"),
        ("replace", "a", "k"),
    ]


def test_a_file_of_messages_notes_how_many_it_replaces(
    delivery: DelayedDelivery, run: CommandLine, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    for name in "ab":
        delivery.send("billing", b"x", at=OLD, message_id=name)
    delivery.send("billing", b"x", at=OLD, message_id="c", key="k")
    file = tmp_path / "new.csv"
    file.write_text("message_id,due_time,body\n" + "".join(f"{name},{NEW.isoformat()},y\n" for name in "abz"))
    done = run("send", "billing", "--file", str(file), "--on-duplicate", "replace")
    assert done.code == 0, done.err
    (entry,) = delivery.operations.changes()
    assert (entry.by, entry.way, entry.action, entry.count) == ("ada", "cli", "replace", 2)
    for name, option in (("ada", ()), ("grace", ("--actor", "grace"))):
        done = run("send", "billing", "x", "--key", "k", "--on-key", "replace", "--at", NEW.isoformat(), *option)
        assert done.code == 0, done.err
        entry = delivery.operations.changes(1)[0]
        assert (entry.by, entry.way, entry.action, entry.new_due_time) == (name, "cli", "replace", NEW)
    keyed = tmp_path / "keyed.csv"
    keyed.write_text(f"message_id,due_time,body,k\nd,{NEW.isoformat()},y,k\n")
    done = run(
        *("send", "billing", "--file", str(keyed), "--key-column", "k", "--on-key", "replace", "--actor", "grace")
    )
    assert done.code == 0, done.err
    entry = delivery.operations.changes(1)[0]
    assert (entry.by, entry.way, entry.action) == ("grace", "cli", "replace")
    for what in (("x", "--delay", "9"), ("--file", str(keyed), "--key-column", "k")):
        assert "who acts? ' ' is no name" in run.refused("send", "billing", *what, "--actor", " ")


def test_what_is_to_be_noted_needs_a_store_that_notes() -> None:
    with pytest.raises(ConfigurationError, match=r"object keeps no audit trail.*audit='operators'"):
        audited(object(), Way.PROGRAM)
    with pytest.raises(ConfigurationError, match="use a SQL store, or cancel and reschedule in your program"):
        audited(object(), Way.CLI)


def test_a_pause_or_limit_that_cannot_be_noted_is_not_made(sqlite_url: str) -> None:
    store = SqlDelayedMessageStore(sqlite_url)
    with DelayedDelivery("sales", store) as delivery:
        operations = delivery.operations
        operations.pause("paused")
        before = operations.destinations()
        with store.engine.begin() as connection:
            refuse = "BEGIN SELECT RAISE(ABORT, 'no note'); END"
            connection.execute(text(f"CREATE TRIGGER t BEFORE INSERT ON {store.table.name}_changes {refuse}"))
        changes: list[Callable[[], object]] = [
            lambda: operations.pause("billing"),
            lambda: operations.resume("paused"),
            lambda: operations.limit_rate("billing", 1.0),
        ]
        for change in changes:
            with pytest.raises(StoreError):
                change()
        assert operations.destinations() == before


class WithoutTransactions(InMemoryDelayedMessageStore):
    """Notes changes, has transactions for single calls only, and dies at its `dies_at`th cancel."""

    dies_at = 0
    in_block = False

    @override
    def transaction(self) -> AbstractContextManager[Any]:
        return super().transaction() if self.in_block else nullcontext(self)

    @override
    def store_many(self, *args: Any, **named: Any) -> int:
        self.in_block = True
        return super().store_many(*args, **named)

    @override
    def cancel(self, message_id: str, *, change: Change | None = None) -> ManagementOutcome:
        self.dies_at -= 1
        if not self.dies_at:
            raise StoreError("it dies here")
        self.in_block = True
        return super().cancel(message_id, change=change)


def test_killed_without_transactions_each_change_that_is_made_is_noted() -> None:
    store = WithoutTransactions()
    with DelayedDelivery("sales", store, None, ALL) as delivery:
        changes = delivery.changes_as(Way.INGRESS, "a publisher")
        for dies_at in (3, 2):
            waiting = [a_message(f"{name}{dies_at}") for name in "abc"]
            delivery.send_many(waiting)
            store.dies_at, store.in_block = dies_at, False
            ids = [message.message_id for message in waiting]
            with pytest.raises(StoreError, match="it dies here"):
                if dies_at == 3:
                    changes.do_all([CancelRequest(message_id=each) for each in ids])
                else:
                    delivery.replace_many([replace(each, due_time=NEW) for each in waiting], ids, changes)
        assert sorted(message.message_id for message in delivery.list().messages) == ["b2", "c2", "c3"]
        assert sorted((each.message_id, each.action, each.new_due_time) for each in delivery.operations.changes()) == [
            ("a2", "replace", NEW),
            ("a3", "cancel", None),
            ("b3", "cancel", None),
        ]


KILLED = """
import sys, time
from delaystore import SqlDelayedMessageStore
from delaystore.settings import TransactionMode
from delaystore.stores.records import (Change, ChangeAction, Way)

store = SqlDelayedMessageStore(sys.argv[1])
store.initialize("sales", TransactionMode.NONE)
change = Change(by="ada", way=Way.CLI, action=ChangeAction.CANCEL)
with store.transaction() as transaction:
    outcome = transaction.cancel("a", change=change)
    if sys.argv[2] == "before":
        print(outcome, flush=True)
        time.sleep(60)
print(outcome, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_before_the_commit_nothing_is_changed_or_noted_and_after_it_both(database_url: str, when: str) -> None:
    with DelayedDelivery("sales", SqlDelayedMessageStore(database_url)) as delivery:
        delivery.send("billing", b"x", at=OLD, message_id="a")
        arguments = [sys.executable, "-c", KILLED, database_url, when]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "done\n"
            child.send_signal(signal.SIGKILL)
        waits, noted = delivery.get("a") is not None, len(delivery.operations.changes())
        assert (waits, noted) == ((True, 0) if when == "before" else (False, 1))
        assert delivery.cancel("a") is (ManagementOutcome.DONE if waits else ManagementOutcome.NOT_FOUND)


def test_on_tables_of_the_release_before_changes_are_noted_and_read(database_url: str) -> None:
    store = SqlDelayedMessageStore(database_url)
    store.initialize("sales", TransactionMode.NONE)
    store.setup_infrastructure()
    name, columns = store.table.name, ("way", "message_id", "message_key", "destination", "wanted", "operation_id")
    with store.engine.begin() as connection:
        on_table = f" ON {name}_changes" if connection.dialect.name in ("mysql", "mariadb") else ""
        connection.execute(text(f"DROP INDEX {name}_changes_id{on_table}"))
        for column in (*columns, "old_due_time", "new_due_time"):
            connection.execute(text(f"ALTER TABLE {name}_changes DROP COLUMN {column}"))
        connection.execute(text(f"UPDATE {name}_version SET version_num = '0004'"))
    store.close()
    older = SqlDelayedMessageStore(database_url)
    older.initialize("sales", TransactionMode.NONE)
    assert older.is_operable
    assert list(older.blocking_defects()) == []
    change = Change(by="ada", way=Way.CLI, action=ChangeAction.CANCEL)
    for message_id in "ab":
        older.store(a_message(message_id))
    assert older.cancel("a", change=change) is ManagementOutcome.DONE
    (before,) = older.changes()
    assert (before.by, before.action, before.way) == ("ada", "cancel", None)
    assert before.about.startswith("message a from ")
    older.setup_infrastructure()
    assert list(older.defects()) == []
    assert older.cancel("b", change=change) is ManagementOutcome.DONE
    after, same = older.changes()
    assert (after.way, after.message_id, same) == ("cli", "b", before)
    older.close()
