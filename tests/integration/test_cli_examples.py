"""The examples of every command run as they are, one after the other."""

import re
import shlex
import shutil
import signal
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from delaystore.cli.main import command
from delaystore.delivery import DelayedDelivery
from delaystore.filters import MessageFilter
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.cascades import channel_to, make_queue
from tests.integration.cli import PATIENCE, CommandLine, command_line, first_line_of, started
from tests.integration.plugin_stand_in import RECORDED
from tests.integration.test_apscheduler import scheduler
from tests.integration.test_cli_watch import terminal
from tests.servers import RabbitMQVhosts
from tests.service.serving import endpoint, write


def examples(context: Any, name: str = "") -> Iterator[tuple[str, list[str]]]:
    """The names of commands, and the calls that their help shows as examples."""
    yield (
        name,
        re.findall(r"^  delaystore ((?!COMMAND|help environment |help TOPIC ).*)$", context.get_help(), re.MULTILINE),
    )
    for word, below in getattr(context.command, "commands", {}).items():
        yield from examples(type(context)(below, parent=context, info_name=word), f"{name} {word}".strip())


EXAMPLES = dict(examples(command().make_context("delaystore", ["demo"], resilient_parsing=True)))
OF_SPARK = {"load"}
"""tests/spark/test_load_cli.py runs its examples, in the session of all tests."""
OF_A_BROKER = {name for name in EXAMPLES if name.split()[:1] in (["control"], ["cascade"], ["ingress"])}
RUNNING = r"dispatch|web .*|control .*|ingress run .*"
"""Examples that run until a signal ends them."""
WATCHING = r"status --watch.*"
LASTING = rf"demo.*|{RUNNING}|{WATCHING}"
"""Examples that take some seconds each."""
each_kind = pytest.mark.parametrize("lasting", [False, pytest.param(True, marks=pytest.mark.long)])
SCHEDULES = """
prefix = "invoices/"
[[schedule]]
name = "invoices/acme"
cron = "@monthly"
destination = "billing"
body = ""
"""
ROWS = "message_id,due_time,destination,body\nr-1,2027-03-01T08:00Z,billing,hello\n"


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str, tmp_path: Path
) -> CommandLine:
    """The command line in a folder, with an endpoint that has a queue."""
    monkeypatch.chdir(tmp_path)
    environment = {"STORE": sqlite_url, "TRANSPORT": sqlite_url, "ENDPOINT": "sales"}
    variables = {f"DELAYSTORE_{name}": value for name, value in environment.items()}
    run = command_line(capsys, monkeypatch, variables)
    assert run("setup", "--queue", "billing").code == 0
    return run


def test_each_command_has_an_example() -> None:
    groups = {name.rpartition(" ")[0] for name in EXAMPLES if " " in name}
    assert [name for name, calls in EXAMPLES.items() if not calls and name not in groups] == []


@each_kind
def test_each_example_runs(run: CommandLine, sqlite_url: str, tmp_path: Path, lasting: bool) -> None:
    write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    (tmp_path / "reminders.csv").write_text(ROWS)
    (tmp_path / "schedules.toml").write_text(SCHEDULES)
    assert run("send", "billing", "--delay", "3d", "--create", "--store", "sqlite:///old.db").code == 0
    assert run("setup", "--store", "sqlite:///new.db").code == 0
    with scheduler("sqlite:///old.db"):  # APScheduler makes its table
        pass
    store = SqlDelayedMessageStore(sqlite_url)
    delivery = DelayedDelivery("sales", store)
    delivery.operations.begin_cancel(MessageFilter(headers={"campaign": "spring"}), operation_id="spring-offers")
    store.close()
    run_all(run, EXAMPLES.keys() - OF_A_BROKER - OF_SPARK, lasting=lasting)


@each_kind
def test_each_example_about_a_broker_runs(
    run: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    rabbitmq: RabbitMQVhosts,
    rabbitmq_url: str,
    tmp_path: Path,
    lasting: bool,
) -> None:
    shutil.copy(RECORDED / "plugin_definitions.json", "before.json")
    other_url = rabbitmq.create_vhost()
    (tmp_path / "new-broker.url").write_text(other_url)
    monkeypatch.setenv("DELAYSTORE_BROKER", rabbitmq_url)
    monkeypatch.setenv("DELAYSTORE_TRANSPORT", rabbitmq_url)
    monkeypatch.setenv("DELAYSTORE_MANAGEMENT", rabbitmq.management_url or "")
    with channel_to(rabbitmq_url) as channel:
        make_queue(channel, "billing")
    assert run("cascade", "create", "--cascade", "nservicebus-v1").code == 0
    assert run("cascade", "create", "--broker", other_url).code == 0
    assert run("ingress", "create", "orders", "--type", "topic").code == 0
    run_all(run, OF_A_BROKER, lasting=lasting)
    rabbitmq.delete_vhost(other_url)


def run_all(run: CommandLine, commands: Collection[str], *, lasting: bool) -> None:
    """The examples of these commands, in their order: either those that take some seconds, or the others."""
    chosen = [example for name, calls in EXAMPLES.items() if name in commands for example in calls]
    for example in chosen:
        if bool(re.fullmatch(LASTING, example)) is not lasting:
            continue
        if re.fullmatch(WATCHING, example):
            assert watched(example) == 0
        elif re.fullmatch(RUNNING, example):
            assert run_until_stopped(example) == 0
        else:
            result = run(*shlex.split(example))
            assert result.code in (0, 1), (example, result.err)  # 1: there is no such message, or no dispatcher


def run_until_stopped(example: str) -> int:
    """The exit code of a command that a signal ends once it has said something."""
    process = started(shlex.split(example), {})
    try:
        assert first_line_of(process)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert "error: " not in said, (example, said)
    return process.returncode


def watched(example: str) -> int:
    """The exit code of a command that redraws the screen of a terminal."""
    with terminal(shlex.split(example), {}) as screen:
        screen.wait_for("sales")
        code, _ = screen.end(signal.SIGINT)
    return code
