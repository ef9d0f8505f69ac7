"""Every example in the documents runs as it stands, but for the addresses of servers."""

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_the_readmes_program_runs(postgresql_url: str, rabbitmq_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("README.md", "python")
    program = program.replace("postgresql+psycopg://localhost/app", postgresql_url)
    program = program.replace("amqp://localhost", rabbitmq_url)
    names: dict[str, Any] = {}
    exec(program, names)
    assert capsys.readouterr().out.endswith("done\n")
    with closing(names["delivery"]) as delivery:
        assert delivery.count() == 2
    names["engine"].dispose()


def test_the_readmes_commands_run(tmp_path: Path) -> None:
    (_, commands) = blocks("README.md", "bash")
    commands = commands.replace("source .venv/bin/activate", "")  # the tests' own environment has it
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "invoice-7" in done.stdout
    assert '"pay me"' in done.stdout


def test_the_kit_runs_as_documented(tmp_path: Path) -> None:
    (kit,) = blocks("docs/writing-a-store.md", "python")
    (tmp_path / "test_your_store.py").write_text(kit)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert re.search(r"^\d\d passed in", done.stdout, re.MULTILINE), done.stdout


def test_every_link_leads_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_make_targets_that_documents_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"^make ([a-z-]+)", document.read_text(), re.MULTILINE):
            assert f"\n{target}:" in makefile, f"{document.name}: make {target}"
