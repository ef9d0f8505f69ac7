"""The examples run, and print what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.java import QUICK_JAVA

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "send_and_dispatch.py": [
        "cancelled: done",
        "received: first {}",
        "received: second {'kind': 'reminder'}",
        "still waiting: 0",
    ],
    "business_transaction.py": [
        "after the commit: 1 waiting",
        "rolled back: the card was declined",
        "after the rollback: 1 waiting",
    ],
    "custom_store.py": ["files: 1", "received: hello", "files: 0"],
}
PRINTED_BY_RABBITMQ = {
    "delayed_retry.py": [
        "order 1: the warehouse is closed: delayed",
        "order 1: the warehouse is closed: delayed",
        "order 1: shipped at attempt 3, as sent with orders.paid",
        "order 2: no such address: delayed",
        "order 2: no such address: delayed",
        "order 2: no such address: delayed",
        "order 2: no such address: failed",
        "error queue: no such address",
    ],
}


def run(*arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, *arguments], env=dict(os.environ), capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_prints_what_it_promises(name: str) -> None:
    assert run("-W", "error", str(EXAMPLES / name)).splitlines() == PRINTED[name]


@pytest.mark.parametrize("name", sorted(PRINTED_BY_RABBITMQ))
def test_an_example_with_rabbitmq_prints_what_it_promises(name: str, rabbitmq_url: str) -> None:
    printed = run("-W", "error", str(EXAMPLES / name), rabbitmq_url).splitlines()
    assert sorted(printed) == sorted(PRINTED_BY_RABBITMQ[name])


def test_the_histogram_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", QUICK_JAVA)
    picture = tmp_path / "due.png"
    printed = run(str(EXAMPLES / "due_histogram.py"), str(picture)).splitlines()
    assert printed[-2] == "2205 messages are due within the week"
    assert printed[-1].endswith(" hours: 200 messages")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_no_example_is_left_out() -> None:
    assert sorted([*PRINTED, *PRINTED_BY_RABBITMQ, "due_histogram.py", "celery_tasks.py", "fastapi_app.py"]) == sorted(
        path.name for path in EXAMPLES.glob("*.py")
    )


def test_the_examples_are_typed() -> None:
    run(
        "-m",
        "mypy",
        "--strict",
        *(str(EXAMPLES / name) for name in [*PRINTED, *PRINTED_BY_RABBITMQ, "celery_tasks.py", "fastapi_app.py"]),
    )
