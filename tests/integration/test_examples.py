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
    "apscheduler_jobs.py": ["reminded ada@example.org after 7 days", "cancelled: done"],
    "traced_sending.py": [
        "send billing",
        "POST /orders",
        "forward billing -> send billing",
        "received: pay me ['traceparent']",
    ],
    "campaign.py": [
        "spring: 996 stored, 8 rejected",
        "spring-corrected: 4 stored, 0 rejected",
        "cancelled for acme: 250",
        "put off: 150",
        "parked: 300",
        "delivered during the pause: 0",
        "replayed: 50",
        "cancelled at the end: 446",
        "996 = 250 delivered + 696 cancelled + 50 failed before",
    ],
    "custom_store.py": ["files: 1", "received: hello", "files: 0"],
}
TESTED_ELSEWHERE = ["celery_tasks.py", "fastapi_app.py", "test_reminders.py"]
PRINTED_BY_RABBITMQ = {
    "taskiq_tasks.py": [
        "cancelled: done",
        "confirmed bob@example.org",
        "no answer for bob@example.org",
        "reminded ada@example.org",
        "reminded cid@example.org",
    ],
    "dramatiq_actors.py": [
        "cancelled: done",
        "confirmed bob@example.org",
        "no answer for bob@example.org",
        "reminded ada@example.org",
        "reminded cid@example.org",
    ],
    "celery_app.py": [
        "waiting: 2",
        "order 2: REVOKED",
        "waiting after the rollback: 1",
        "order 1: reminded at attempt 2",
    ],
    "celery_without_beat.py": [
        "created: celery/celery.backend_cleanup",
        "created: celery/report",
        "created: celery/tick",
        "ids of tick: 3",
    ],
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


@pytest.mark.long_runs("apscheduler_jobs.py")
@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_prints_what_it_promises(name: str) -> None:
    assert run("-W", "error", str(EXAMPLES / name)).splitlines() == PRINTED[name]


@pytest.mark.long_runs("celery_app.py", "celery_without_beat.py")
@pytest.mark.parametrize("name", sorted(PRINTED_BY_RABBITMQ))
def test_an_example_with_rabbitmq_prints_what_it_promises(
    name: str, rabbitmq_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what a user would look at afterwards stays there
    printed = run("-W", "error", str(EXAMPLES / name), rabbitmq_url).splitlines()
    assert sorted(printed) == sorted(PRINTED_BY_RABBITMQ[name])


@pytest.mark.long
def test_the_histogram_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", QUICK_JAVA)
    picture = tmp_path / "due.png"
    printed = run(str(EXAMPLES / "due_histogram.py"), str(picture)).splitlines()
    assert printed[-2] == "2205 messages are due within the week"
    assert printed[-1].endswith(" hours: 200 messages")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_no_example_is_left_out() -> None:
    printed = [*PRINTED, *PRINTED_BY_RABBITMQ]
    assert sorted([*printed, *TESTED_ELSEWHERE, "due_histogram.py"]) == sorted(p.name for p in EXAMPLES.glob("*.py"))


def test_the_examples_are_typed() -> None:
    run(
        "-m",
        "mypy",
        "--strict",
        *(str(EXAMPLES / name) for name in [*PRINTED, *PRINTED_BY_RABBITMQ, *TESTED_ELSEWHERE]),
    )
