"""The command line as a process: signals, pipes, start-up."""

import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from pika import spec

from delaystore.delivery import DelayedDelivery
from delaystore.stores import SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport
from tests.integration.cli import PATIENCE, first_line_of, started
from tests.servers.ports import free_port
from tests.servers.scripted_broker import HANDSHAKE, ScriptedBroker


@pytest.fixture
def environment(sqlite_url: str) -> dict[str, str]:
    """Names a store, a transport and an endpoint."""
    return {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_TRANSPORT": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}


@pytest.mark.long_runs("2")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_dispatcher_asked_to_stop_exits_with_0_and_its_counts(
    environment: dict[str, str], sqlite_url: str, number: signal.Signals
) -> None:
    store, queues = SqlDelayedMessageStore(sqlite_url), SqlQueueTransport(sqlite_url)
    queues.declare("billing")
    DelayedDelivery("sales", store).send("billing", b"hello", delay=0)
    process = started(["dispatch", "--json"], environment)
    try:
        assert first_line_of(process) == "dispatching for endpoint 'sales'\n"
        with queues.receive("billing", timeout=PATIENCE) as received:
            assert len(received) == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0
    assert '"delivered": 1' in out
    assert err == "stopped: 1 delivered, 0 failed attempts, 0 moved to the error queue\n"
    assert store.count() == 0
    store.close()
    queues.close()


def test_a_dispatcher_stops_with_work_left_and_leaves_it_in_the_store(
    environment: dict[str, str], sqlite_url: str
) -> None:
    store, queues = SqlDelayedMessageStore(sqlite_url), SqlQueueTransport(sqlite_url)
    queues.declare("billing")
    delivery = DelayedDelivery("sales", store)
    for _ in range(200):
        delivery.send("billing", b"hello", delay=0)
    process = started(["dispatch", "--batch-size", "1", "--exactly-once"], environment)
    try:
        first_line_of(process)
        with queues.receive("billing", timeout=PATIENCE) as first:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0
    with queues.receive("billing", 1000) as rest:
        assert len(first) + len(rest) + store.count() == 200
    store.close()
    queues.close()


STOPPED = "stopped: 0 delivered, 0 failed attempts, 0 moved to the error queue\n"


@pytest.mark.long_runs("2")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("server", "scheme"), [("store", "postgresql+psycopg"), ("transport", "amqp")])
def test_a_dispatcher_waits_for_a_server_until_it_is_asked_to_stop(
    environment: dict[str, str], server: str, scheme: str, number: signal.Signals
) -> None:
    environment[f"DELAYSTORE_{server.upper()}"] = f"{scheme}://app:s3cret@127.0.0.1:{free_port()}/app"
    process = started(["dispatch"], environment)
    try:
        line = first_line_of(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert line.startswith(f"waiting for the {server}: ")
    assert line.endswith(" (--fail-fast ends instead)\n")
    assert "s3cret" not in line
    assert (process.returncode, out, err) == (0, "", STOPPED)


def test_a_dispatcher_that_waits_for_a_frozen_broker_ends_at_once(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        frozen.settimeout(PATIENCE)
        environment["DELAYSTORE_TRANSPORT"] = f"amqp://127.0.0.1:{frozen.getsockname()[1]}?connection_timeout=600"
        process = started(["dispatch"], environment)
        try:
            peer, _ = frozen.accept()
            with peer:
                assert peer.recv(8).startswith(b"AMQP")
                process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, STOPPED)


def test_a_dispatcher_begins_when_its_broker_is_there(environment: dict[str, str]) -> None:
    place = ("127.0.0.1", free_port())
    environment["DELAYSTORE_TRANSPORT"] = f"amqp://{place[0]}:{place[1]}"
    process = started(["dispatch"], environment)
    try:
        assert first_line_of(process).startswith("waiting for the transport: ")
        answers = {spec.Queue.Declare: lambda declare: spec.Queue.DeclareOk(declare.queue, 0, 0)}
        with ScriptedBroker({**HANDSHAKE, **answers}, place=place):
            assert first_line_of(process) == "dispatching for endpoint 'sales'\n"
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0


@pytest.mark.long_runs("143")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_demo_shows_what_was_so_far_and_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = started(["demo", "--messages", "100", "--seconds", "600", "--json"], {"TMPDIR": str(tmp_path)})
    try:
        first_line_of(process)
        deadline = time.monotonic() + PATIENCE
        while not list(tmp_path.glob("*/demo.db-wal")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == code
    assert '"interrupted": true' in out
    assert err.endswith("stopped\n")
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_wait_says_stopped(environment: dict[str, str], sqlite_url: str) -> None:
    queues = SqlQueueTransport(sqlite_url)
    queues.declare("billing")
    queues.close()
    process = started(["receive", "billing", "--timeout", "10m"], environment)
    try:
        time.sleep(2)  # there is nothing to see of it while it waits
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "stopped\n")


def test_a_reader_that_closes_the_pipe_gets_no_traceback(environment: dict[str, str], sqlite_url: str) -> None:
    store = SqlDelayedMessageStore(sqlite_url)
    delivery = DelayedDelivery("sales", store)
    delivery.send("billing", b"x" * 1_000_000, delay=3600, message_id="big")
    store.close()
    for arguments in (["show", "big", "--json"], ["show", "big", "--body"]):
        process = started(arguments, environment)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == ""
        process.stderr.close()
        process.wait(PATIENCE)


RUNS = {
    "installed": "entry_point.load()()",
    "module": "runpy.run_module('delaystore.cli', run_name='__main__')",
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("library", ["typer", "delaystore.cli._cascade"])
def test_an_interrupt_while_the_command_line_is_imported_says_stopped(run: str, library: str) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    program = f"""
import os, runpy, signal, sys
from importlib.metadata import EntryPoint

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {library!r}:
            os.kill(os.getpid(), signal.SIGINT)

entry_point = EntryPoint("delaystore", {project["project"]["scripts"]["delaystore"]!r}, "console_scripts")
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["delaystore", "--version"]
{run}
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "stopped\n")


def test_hardly_anything_is_imported_before_interrupts_are_answered() -> None:
    program = "import sys, delaystore.cli.entry; print(sorted(name for name in sys.modules if 'delaystore.' in name))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert result.stdout == "['delaystore.cli', 'delaystore.cli.entry']\n"


def test_help_imports_neither_database_nor_broker_libraries() -> None:
    program = (
        "import sys, delaystore.cli.main; "
        "print([name for name in ('sqlalchemy', 'alembic', 'pika', 'psycopg', 'rich.table') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert result.stdout == "[]\n"


def test_the_command_line_starts_without_what_only_some_commands_need() -> None:
    heavy = ("pika", "pyarrow", "pyspark", "rich", "sqlalchemy", "starlette")
    program = f"import sys, delaystore.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
