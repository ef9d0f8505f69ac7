"""A store's password is in no list of processes, in no log and no event log of Spark's."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.integration.cli import PATIENCE, started
from tests.servers import PostgreSQLDatabases
from tests.spark.java import QUICK_JAVA
from tests.spark.test_reading import psycopg_url

PASSWORD = "M4rker-pa55word"
ROWS = "message_id,due_time,destination,body\na,2027-03-01T08:00:00Z,billing,hello\n"


@pytest.mark.long
def test_of_a_load(postgresql: PostgreSQLDatabases, postgresql_url: str, tmp_path: Path) -> None:
    role = postgresql.create_role("secret_loader", PASSWORD, postgresql_url)
    with psycopg.connect(psycopg_url(postgresql_url), autocommit=True) as connection:
        connection.execute("GRANT ALL ON SCHEMA public TO secret_loader")
    (tmp_path / "store").write_text(role)
    (tmp_path / "rows.csv").write_text(ROWS)
    events, log = tmp_path / "events", tmp_path / "spark.log"
    events.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
    }
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    place = ["--store", f"@{tmp_path}/store", "--endpoint", "sales", "--master", "local[1]", "--spark-log", str(log)]
    process = started(["load", str(tmp_path / "rows.csv"), "--create", *place, *conf], {})
    try:
        seen = arguments_until_it_ends(process)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert [one for one in seen if "SparkSubmit" in one]
    assert [one for one in seen if "pyspark" in one]
    logged = [file.read_text() for file in events.rglob("events_*")]
    assert [one for one in logged if "delaystore" in one]
    assert not [text[:200] for text in (*seen, *logged, log.read_text(), out, err) if PASSWORD in text]


def arguments_until_it_ends(process: subprocess.Popen[str]) -> set[str]:
    """The command lines of a process and all its descendants."""
    seen: set[str] = set()
    deadline = time.monotonic() + 10 * PATIENCE
    while process.poll() is None:
        assert time.monotonic() < deadline
        with suppress(psutil.Error):
            tree = psutil.Process(process.pid)
            for one in (tree, *tree.children(recursive=True)):
                with suppress(psutil.Error):
                    seen.add(" ".join(one.cmdline()))
        time.sleep(1)
    return seen
