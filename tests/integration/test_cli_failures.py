"""Why messages fail, and what is paused: seen by `list`, `show`, `dispatch`, `status` and `health`."""

import os
import pty
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.filters import MessageFilter
from delaystore.message import FailedAttempt
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.abc import Page
from delaystore.stores.records import Activity, DispatcherRecord, FailedDelivery
from delaystore.transports import RabbitMQTransport, open_transport
from tests.integration.cli import PATIENCE, CommandLine, started
from tests.integration.sql_stores import message
from tests.integration.test_rabbitmq_transport import declare_with

pytestmark = pytest.mark.long_runs("mariadb")

FULL = "the queue is full; it holds 1 message, and takes no more than that"


@pytest.fixture
def environment(database_url: str) -> dict[str, str]:
    return {"DELAYSTORE_STORE": database_url, "DELAYSTORE_ENDPOINT": "sales"}


@pytest.fixture
def failing(store: SqlDelayedMessageStore) -> SqlDelayedMessageStore:
    """`bad` has failed twice; `parked` waits for a paused destination; `well-0` to `well-4` are due in an hour."""
    now = store.now()
    headers = {"tenant": "a"}
    store.store_many([message(now, 3600, f"well-{n}", headers=headers) for n in range(5)])
    store.store_many([message(now, -600, "bad"), message(now, -600, "parked", destination="shipping")])
    store.pause("shipping", by="me")
    while store.park(now):
        pass
    for kind, reason in (("Unavailable", "no leader"), ("Refused", FULL)):
        with store.transaction() as transaction:
            (bad,) = transaction.fetch_due(store.now(), 10)
            attempt = FailedAttempt(now, kind, reason)
            later = store.now() - timedelta(seconds=kind == "Unavailable")
            shown = later if kind == "Unavailable" else now + timedelta(hours=1)
            transaction.count_failures([FailedDelivery(message=bad, next_attempt=shown, attempt=attempt)])
    return store


def ids(run: CommandLine, *arguments: str) -> list[str]:
    return [one["message_id"] for one in run("list", *arguments, "--json").document["messages"]]


@pytest.mark.usefixtures("failing")
def test_list_finds_what_fails_and_why(run: CommandLine) -> None:
    (bad,) = run("list", "--failing", "--json").document["messages"]
    assert (bad["message_id"], bad["failure_count"], bad["parked"]) == ("bad", 2, False)
    assert (bad["last_failure"]["kind"], bad["last_failure"]["reason"]) == ("Refused", FULL)
    names, line = run("list", "--failing").out.splitlines()
    assert names.endswith("last failure")
    assert line.endswith(f"ago: {FULL}")
    assert ids(run, "--paused") == ["parked"]
    assert ids(run, "--id-prefix", "well-", "--limit", "2") == ["well-0", "well-1"]
    assert len(ids(run, "--header", "tenant=a", "--destination", "billing")) == 5
    assert ids(run, "--header", "tenant=b") == []


@pytest.mark.usefixtures("failing")
def test_a_search_goes_on_until_its_page_is_full(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    search = SqlDelayedMessageStore.search

    def a_little(self: SqlDelayedMessageStore, wanted: MessageFilter, **given: Any) -> Page:
        return search(self, wanted, **given, examine=1)

    monkeypatch.setattr(SqlDelayedMessageStore, "search", a_little)
    arguments = ["--id-prefix", "well-", "--limit", "2"]
    first = run("list", *arguments, "--json").document
    second = run("list", *arguments, "--after", first["next"], "--json").document
    third = run("list", *arguments, "--after", second["next"], "--json").document
    found = [one["message_id"] for page in (first, second, third) for one in page["messages"]]
    assert found == [f"well-{n}" for n in range(5)]
    assert len(ids(run, "--id-prefix", "well-", "--limit", "2", "--all")) == 5
    assert "more follow; the next page: --after " in run("list", *arguments).err


@pytest.mark.usefixtures("failing")
def test_show_has_all_failures_and_says_parked(run: CommandLine) -> None:
    shown = run("show", "bad").out
    assert "Unavailable: no leader\n" in shown
    assert f"Refused: {FULL}\n" in shown
    assert [one["kind"] for one in run("show", "bad", "--json").document["failures"]] == ["Unavailable", "Refused"]
    parked = run("show", "parked").out
    assert "parked: at once when its destination is resumed" in parked
    assert "9999" not in parked
    document = run("show", "parked", "--json").document
    assert (document["parked"], document["next_attempt"]) == (True, None)
    assert "(parked)" in run("list", "--paused").out


@pytest.mark.long
@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # what is drawn is the same with each
def test_a_terminal_of_80_columns_gets_whole_destinations(run: CommandLine) -> None:
    for arguments in (["list", "--failing"], ["list", "--paused"], ["list"], ["status"]):
        ours, theirs = pty.openpty()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "delaystore.cli", *arguments],
                env={**os.environ, **run.environment, "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"},
                stdout=theirs,
                stderr=subprocess.PIPE,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            shown = os.read(ours, 1_000_000).decode()
        finally:
            os.close(theirs)
            os.close(ours)
        assert done.returncode in (0, 1), done.stderr
        assert "9999" not in shown
        plain = shown.replace("\x1b[1m", "").replace("\x1b[0m", "")
        assert "\x1b" not in plain
        assert max(map(len, plain.splitlines())) <= 80
        if arguments == ["list", "--failing"]:
            assert "Refused" in plain
            assert "billing" in plain


def test_health_tells_of_failing_and_paused_ones_and_alarms_nobody(
    run: CommandLine, failing: SqlDelayedMessageStore
) -> None:
    told = run("health", "--max-overdue", "1h")
    assert told.code == 0
    assert "; no dispatcher is running; 1 failing; paused: shipping" in told.out
    document = run("health", "--max-overdue", "1h", "--json").document
    assert (document["failing"], document["parked"], document["paused"]) == (1, 1, ["shipping"])
    assert (document["waiting"], document["dispatchers"]) == (7, 0)
    assert run("health", "--max-overdue", "1h", "--require-dispatcher").code == 1
    failing.heartbeat(record(failing), [Activity(minute=failing.now().replace(second=0, microsecond=0), delivered=3)])
    assert run("health", "--max-overdue", "1h", "--require-dispatcher").code == 0
    assert "no dispatcher" not in run("health", "--max-overdue", "1h").out
    assert failing.cancel("bad").value == "done"
    assert "nothing is overdue; paused: shipping" in run("health").out, "what is parked is not overdue"


def record(store: SqlDelayedMessageStore) -> DispatcherRecord:
    now = store.now()
    known = {"dispatcher_id": "1", "name": "worker-1", "host": "app-7", "pid": 4711, "version": "0.2.0"}
    return DispatcherRecord(**known, since=now - timedelta(hours=3), heartbeat=now, rate=2.5)  # type: ignore[arg-type]


def test_status_shows_dispatchers_and_what_they_did(run: CommandLine, failing: SqlDelayedMessageStore) -> None:
    failing.heartbeat(record(failing), [Activity(minute=failing.now().replace(second=0, microsecond=0), delivered=3)])
    shown = run("status", "--max-overdue", "1h")
    assert shown.code == 0
    for text in (
        "failing      1; ",
        "parked       1\n",
        "paused       shipping\n",
        "worker-1",
        "4711 on app-7",
        "2.5/s",
    ):
        assert text in shown.out
    document = run("status", "--max-overdue", "1h", "--json").document
    assert [one["name"] for one in document["dispatchers"]] == ["worker-1"]
    assert [one["delivered"] for one in document["recent"]] == [3, 3, 3]
    (listed,) = run("endpoints", "--json").document["endpoints"]
    assert (listed["waiting"], listed["dispatchers"]) == (7, 1)


@pytest.mark.long_runs("mariadb", "sqlite")
def test_a_dispatcher_is_shown_by_the_name_that_it_was_given(
    run: CommandLine, store: SqlDelayedMessageStore, sqlite_url: str
) -> None:
    process = started(["dispatch", "--name", "worker-7", "--transport", sqlite_url], run.environment)
    try:
        while not (living := store.dispatchers()):
            assert process.poll() is None
        assert [one.name for one in living] == ["worker-7"]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert not store.dispatchers()
    line = run.refused("dispatch", "--once", "--name", "a\nb", "--transport", sqlite_url)
    assert "a dispatcher's name cannot be 'a\\nb'" in line


@pytest.mark.long_runs("mariadb", "sqlite")
def test_the_log_says_why(run: CommandLine, store: SqlDelayedMessageStore, rabbitmq_url: str) -> None:
    declare_with(rabbitmq_url, "full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    delivery = DelayedDelivery("sales", store)
    for _ in range(2):
        delivery.send("full", b"", delay=0)
    process = started(["dispatch", "--once", "-v", "--transport", rabbitmq_url], run.environment)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "'full' failed and will be tried again: Refused: " in err
    (failed,) = run("list", "--failing", "--json").document["messages"]
    assert failed["last_failure"]["kind"] == "Refused"
    assert failed["last_failure"]["reason"] in err


def test_a_queue_that_is_not_there_is_warned_of(
    run: CommandLine, store: SqlDelayedMessageStore, sqlite_url: str, rabbitmq_url: str
) -> None:
    with closing(open_transport(sqlite_url)) as queues, closing(RabbitMQTransport(rabbitmq_url)) as broker:
        queues.declare("there")
        broker.declare("there")
    for url in (sqlite_url, rabbitmq_url):
        known = run("send", "there", "--delay", "1h", "--transport", url)
        assert (known.code, known.err) == (0, "")
        unknown = run("send", "their", "--delay", "1h", "--transport", url)
        assert unknown.code == 0
        assert unknown.err.startswith("warning: nothing takes messages for 'their' at present; ")
        assert store.get(unknown.out.strip()) is not None
    nowhere = run("send", "their", "--delay", "1h", "--transport", "amqp://127.0.0.1:1")
    assert (nowhere.code, nowhere.err) == (0, "")
