"""The examples that `--help` ends with run as they are, one after the other."""

import re
import shlex
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from delaystore.cli.main import app
from tests.integration.cli import CommandLine
from tests.integration.plugin_stand_in import RECORDED
from tests.servers import RabbitMQVhosts
from tests.service.serving import endpoint, write


def examples(command: Any, name: str = "") -> Iterator[tuple[str, list[str]]]:
    """The names of commands, and the calls that their help ends with."""
    for each, below in getattr(command, "commands", {}).items():
        yield from examples(below, f"{name} {each}".strip())
    if command.epilog:
        yield name, re.findall(r"^ *delaystore (.*)$", command.epilog, re.MULTILINE)


EXAMPLES = dict(examples(get_command(app)))
OF_A_BROKER = [command for command in EXAMPLES if command.startswith("ingress ")]


def test_each_example_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"STORE": sqlite_url, "TRANSPORT": sqlite_url, "ENDPOINT": "sales"}.items():
        monkeypatch.setenv(f"DELAYSTORE_{name}", value)
    write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    run = CommandLine(capsys, {})
    run("setup", "--queue", "billing")
    run_all(run, EXAMPLES.keys() - OF_A_BROKER)


def test_each_example_about_an_ingress_runs(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    rabbitmq: RabbitMQVhosts,
    rabbitmq_url: str,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(RECORDED / "plugin_definitions.json", "before.json")
    monkeypatch.setenv("DELAYSTORE_BROKER", rabbitmq_url)
    monkeypatch.setenv("DELAYSTORE_MANAGEMENT", rabbitmq.management_url or "")
    run_all(CommandLine(capsys, {}), OF_A_BROKER)


def run_all(run: CommandLine, commands: Collection[str]) -> None:
    """The examples of these commands, in their order."""
    for command, calls in EXAMPLES.items():
        for example in calls if command in commands else ():
            assert example.startswith(command)
            result = run(*shlex.split(example))
            assert result.code in (0, 1), (example, result.err)  # 1: there is no such message, or no dispatcher
            shown = run(*shlex.split(command), "--help").out
            assert f"  delaystore {example}\n" in shown
