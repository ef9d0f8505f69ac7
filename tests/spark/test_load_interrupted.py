"""Ctrl-C while Spark starts, which takes long: the command says so at once, and leaves no Java."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.integration.cli import PATIENCE, started
from tests.spark.java import QUICK_JAVA


def has_java(process: psutil.Process, log: Path) -> bool:
    """Spark's Java, or the script that starts it: it writes there."""
    return log.exists()


def has_gateway(_: psutil.Process, log: Path) -> bool:
    """Java answers, and makes Spark's context."""
    return log.exists() and log.stat().st_size > 0


@pytest.mark.long_runs("options0")
@pytest.mark.parametrize("moment", [has_java, has_gateway])
@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_an_interrupt_while_spark_starts_ends_it(
    tmp_path: Path, moment: Callable[[psutil.Process, Path], bool], options: list[str]
) -> None:
    rows = "".join(f"{number},2027-03-01T08:00:00Z,x\n" for number in range(2))
    (tmp_path / "a.csv").write_text(f"message_id,due_time,body\n{rows}")
    environment = {
        "DELAYSTORE_STORE": f"sqlite:///{tmp_path / 'a.db'}",
        "DELAYSTORE_ENDPOINT": "sales",
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "SPARK_SUBMIT_OPTS": QUICK_JAVA,
        "TMPDIR": str(tmp_path),
    }
    arguments = ["load", "a.csv", "--destination", "q", "--create", "--master", "local[1]", *options]
    arguments += ["--spark-log", "spark.log"]
    process = started(arguments, environment, cwd=tmp_path, stdin=subprocess.DEVNULL)
    try:
        looked_at, deadline = psutil.Process(process.pid), time.monotonic() + 2 * PATIENCE
        while not moment(looked_at, tmp_path / "spark.log"):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        below = looked_at.children(recursive=True)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    note, *lines = err.splitlines()
    assert "2 rows: `delaystore send --file a.csv`" in note
    left = "a dry run writes nothing" if options else "nothing was loaded"
    assert lines == ["stopping: Spark is still starting", f"stopped; {left}"]
    _, alive = psutil.wait_procs(below, PATIENCE)
    assert alive == []
    assert not list(tmp_path.glob("delaystore-*"))
