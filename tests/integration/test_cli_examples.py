"""The examples that `--help` ends with run as they are, one after the other."""

import shlex
from pathlib import Path

import pytest

from delaystore.cli._examples import EXAMPLES
from tests.integration.cli import CommandLine


def test_each_example_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_url: str, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"STORE": sqlite_url, "TRANSPORT": sqlite_url, "ENDPOINT": "sales"}.items():
        monkeypatch.setenv(f"DELAYSTORE_{name}", value)
    run = CommandLine(capsys, {})
    run("setup", "--queue", "billing")
    for command, examples in EXAMPLES.items():
        for example in examples:
            assert example.startswith(command)
            result = run(*shlex.split(example))
            assert result.code in (0, 1), (example, result.err)  # 1: there is no such message, or no dispatcher
            shown = run(*shlex.split(command), "--help").out
            assert f"  delaystore {example}\n" in shown
