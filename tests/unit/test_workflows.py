"""What runs after each push and each week, and by hand: the same commands, and each exists."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
ELSEWHERE = {"apt-get"}
"""Commands that are none of ours."""


def read(path: Path) -> dict[Any, Any]:
    document = yaml.safe_load(path.read_text())
    assert isinstance(document, dict)
    return document


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def commands_of(script: str) -> list[list[str]]:
    """The commands of a shell script, a list of words each, without `sudo`."""
    lines = re.split(r"\n|&&|\|\|", re.sub(r"\$\{\{.*?\}\}", "VALUE", script.replace("\\\n", " ")))
    split = (shlex.split(line, comments=True) for line in lines)
    return [words[1:] if words[0] == "sudo" else words for words in split if words]


def test_both_kinds_are_there() -> None:
    assert {path.stem for path in WORKFLOWS} >= {"push", "weekly"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_command_exists(path: Path) -> None:
    for step in steps_of(path):
        for command, *arguments in commands_of(step.get("run", "")):
            if command == "make":
                assert TARGETS.issuperset(word for word in arguments if "=" not in word)
            elif command not in ELSEWHERE:
                assert os.access(ROOT / command, os.X_OK), command


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_have_a_major_version_at_least_and_jobs_an_end(path: Path) -> None:
    for step in steps_of(path):
        assert ("run" in step) != ("uses" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w.-]+@(v\d[\w.]*|[0-9a-f]{40})", step["uses"]), step["uses"]
    assert all(job["timeout-minutes"] for job in read(path)["jobs"].values())
    assert read(path)["permissions"] == {"contents": "read"}


def test_each_push_runs_what_continuous_integration_runs() -> None:
    assert [".ci/run"] in commands_of(
        "\n".join(step.get("run", "") for step in steps_of(ROOT / ".github/workflows/push.yml"))
    )
    ours = commands_of((ROOT / ".ci/run").read_text())
    assert TARGETS.issuperset(words[1] for words in ours if words[0] == "make" and not words[1].startswith("-"))


def test_each_week_all_releases_that_the_readme_names_are_tried() -> None:
    (tested,) = re.findall(r"^Tested on (Debian .*?):", (ROOT / "README.md").read_text(), re.MULTILINE)
    releases = re.findall(r"\((\w+)\)", tested)
    assert releases == ["bookworm", "trixie", "forky"]
    job = read(ROOT / ".github/workflows/weekly.yml")["jobs"]["matrix"]
    assert job["strategy"]["matrix"]["suite"] == releases
    assert not job["strategy"]["fail-fast"]
    assert any("make matrix SUITE=${{ matrix.suite }}" in step.get("run", "") for step in job["steps"])
