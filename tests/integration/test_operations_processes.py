"""Operations on the command line as processes: signals, and what a terminal is asked."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.filters import EVERYTHING
from delaystore.stores.records import OperationState
from tests.dispatching import wait_until
from tests.integration.cli import PATIENCE, started
from tests.integration.sql_stores import connected, message, opened, query

MANY = 20_000


@pytest.fixture
def store(prepared_sqlite_url: str) -> Iterator[SqlDelayedMessageStore]:
    with opened(prepared_sqlite_url) as store:
        yield store


@pytest.fixture
def environment(sqlite_url: str) -> dict[str, str]:
    return {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}


def fill(store: SqlDelayedMessageStore, count: int) -> None:
    now = store.now()
    store.store_many(message(now, 3600, f"billing-{number:06}") for number in range(count))


def test_an_interrupted_cancel_says_how_far_it_is_and_goes_on(
    store: SqlDelayedMessageStore, environment: dict[str, str]
) -> None:
    fill(store, MANY)
    process = started(["cancel", "--destination", "billing"], environment)
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        while store.count() == MANY and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGINT
    operation_id = first.removeprefix("operation ").strip()
    left = store.count()
    assert 0 < left < MANY
    go_on = f"go on with `delaystore operations resume {operation_id}`"
    assert err == f"interrupted: {MANY - left:,} messages cancelled so far; {go_on}\n"
    resumed = started(["operations", "resume", operation_id, "--json"], environment)
    out, _ = resumed.communicate(timeout=PATIENCE)
    assert resumed.returncode == 0
    assert json.loads(out)["changed"] == MANY
    assert store.count() == 0


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_a_locked_table(
    environment: dict[str, str], postgresql_url: str, number: signal.Signals, *, has_begun: bool
) -> None:
    """The audit trail is written with the operation, and with each of its steps."""
    with opened(postgresql_url) as store, connected(postgresql_url) as holder:
        store.store(message(store.now(), 3600, "a"))
        command, said = ["cancel", "--all"], "nothing is changed"
        if has_begun:
            begun = DelayedDelivery("sales", store).operations.begin_cancel(EVERYTHING).operation_id
            go_on = f"go on with `delaystore operations resume {begun}`"
            command, said = ["operations", "resume", begun], f"0 messages cancelled so far; {go_on}"
        holder.execute(text("LOCK TABLE sales_delayed_changes IN EXCLUSIVE MODE"))
        process = started(command, {**environment, "DELAYSTORE_STORE": postgresql_url})
        try:
            waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            wait_until(lambda: bool(query(postgresql_url, waiting)) or process.poll() is not None)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
        assert (process.returncode, out) == (128 + number, "")
        assert err.endswith(f"interrupted: {said}\n")
        assert store.count() == 1


def test_an_interrupted_pause_is_a_pause(store: SqlDelayedMessageStore, environment: dict[str, str]) -> None:
    now = store.now()
    store.store_many(message(now, -1, f"m{number:06}") for number in range(MANY))
    process = started(["pause", "billing"], environment)
    try:
        while not store.count_parked(1):
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    if process.returncode == 0:  # it was faster
        assert out.startswith("paused: billing")
    else:
        assert (process.returncode, err) == (
            128 + signal.SIGTERM,
            "interrupted: it is paused, and dispatchers park the rest\n",
        )
    assert [each.name for each in store.destinations()] == ["billing"]


@pytest.mark.long_runs("2")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_export_that_is_ended_is_not_there_and_goes_on(
    store: SqlDelayedMessageStore, environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    fill(store, MANY)
    file, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part"
    process = started(["export", str(file)], environment)
    try:
        while not (part.exists() and part.stat().st_size):
            time.sleep(0.005)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == (-number if number is signal.SIGKILL else 128 + number)
    assert not file.exists()
    resumed = started(["export", str(file), "--continue"], environment)
    resumed.communicate(timeout=PATIENCE)
    assert resumed.returncode == 0
    ids = [json.loads(line)["message_id"] for line in file.read_text().splitlines()]
    assert ids == [f"billing-{number:06}" for number in range(MANY)]
    assert not part.exists()


def at_a_terminal(arguments: list[str], environment: dict[str, str], answer: str) -> tuple[int, str]:
    """The exit code, and what a terminal shows, where the question is answered so."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "delaystore.cli", *arguments],
        env={**os.environ, **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown, asked = b"", False
    try:
        while select.select([ours], [], [], PATIENCE)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # they have closed it
                break
            shown += piece
            if not asked and b"[y/N]" in shown:
                asked = True
                os.write(ours, f"{answer}\n".encode())
        return process.wait(PATIENCE), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    finally:
        process.kill()
        os.close(ours)


def test_a_terminal_is_asked_before_many_messages_are_changed(
    store: SqlDelayedMessageStore, environment: dict[str, str]
) -> None:
    fill(store, 1_001)
    code, shown = at_a_terminal(["cancel", "--all"], environment, "n")
    assert code == 1
    assert "1,001 messages match: all messages" in shown
    assert "nothing is changed" in shown
    assert (store.count(), store.operations()) == (1_001, [])
    code, shown = at_a_terminal(["reschedule", "--all", "--delay", "2h"], environment, "y")
    assert code == 0
    assert "1,001 messages (all messages)" in shown
    code, shown = at_a_terminal(["cancel", "--all", "--yes"], environment, "")
    assert code == 0
    assert "[y/N]" not in shown
    assert store.count() == 0


def test_a_terminal_is_not_asked_about_few(store: SqlDelayedMessageStore, environment: dict[str, str]) -> None:
    fill(store, 1_000)
    code, shown = at_a_terminal(["cancel", "--all"], environment, "")
    assert code == 0
    assert "[y/N]" not in shown


def test_a_script_is_not_asked(store: SqlDelayedMessageStore, environment: dict[str, str]) -> None:
    fill(store, 1_001)
    process = started(["cancel", "--all"], environment, stdin=subprocess.DEVNULL)
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "cancelled: 1,001 messages (all messages)\n")


def test_two_commands_on_one_operation_do_it_once(store: SqlDelayedMessageStore, environment: dict[str, str]) -> None:
    fill(store, 10_000)
    delivery = DelayedDelivery("sales", SqlDelayedMessageStore(environment["DELAYSTORE_STORE"]))
    begun = delivery.operations.begin_reschedule(EVERYTHING, delay=7200)
    both = [started(["operations", "resume", begun.operation_id], environment) for _ in range(2)]
    for each in both:
        each.communicate(timeout=PATIENCE)
        assert each.returncode == 0
    done = delivery.operations.operation(begun.operation_id)
    assert done is not None
    assert (done.state, done.changed, done.examined) == (OperationState.DONE, 10_000, 10_000)
    delivery.close()
