"""Celery's workers, in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.dispatching import wait_until

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
CELERY = [sys.executable, "-m", "celery", "-A", "tests.celery.apps"]


def settings(
    broker: str, store: str, folder: Path, *, queue: str = "work", backend: str | None = None, quorum: bool = False
) -> dict[str, str]:
    """The variables of tests/celery/apps.py."""
    found = {"CELERY_BROKER": broker, "CELERY_STORE": store, "CELERY_QUEUE": queue, "CELERY_RAN": str(folder / "ran")}
    if backend:
        found["CELERY_BACKEND"] = backend
    if quorum:
        found["CELERY_QUORUM"] = "1"
    return found


@contextmanager
def worker(variables: dict[str, str], log: Path, *options: str) -> Iterator[None]:
    """A worker that has started; at the end it is shut down, warm, and its log shows no traceback of delaystore's."""
    command = [*CELERY, "worker", "--loglevel", "info", "--without-gossip", "--without-mingle", *options]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=os.environ | variables, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: " ready." in log.read_text() or process.poll() is not None, lambda: log.read_text())
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()


def celery(variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `celery -A APP ...` says."""
    return subprocess.run(
        [*CELERY, *arguments], env=os.environ | variables, cwd=ROOT, capture_output=True, text=True, check=False
    )


def ran(folder: Path) -> list[dict[str, Any]]:
    """What the tasks have written, in the order in which they ran."""
    file = folder / "ran"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def runs_of(folder: Path, task_id: str) -> list[dict[str, Any]]:
    return [line for line in ran(folder) if line["id"] == task_id]
