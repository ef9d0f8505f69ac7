"""The examples of load-files.md and spark.md run as they stand, except for addresses of servers and folders."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delaystore.delivery import DelayedDelivery
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.test_documents import blocks, shell
from tests.spark.java import QUICK_JAVA

FILES = "docs/how-to/load-files.md"
DOCUMENT = "docs/how-to/spark.md"
STORE = "postgresql+psycopg://localhost/app"


def count(url: str) -> int:
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(url))) as delivery:
        return delivery.count()


@pytest.mark.long
def test_a_csv_becomes_dispatched_messages(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more.csv").write_text("order,send_at,text\n19,2030-01-01T00:00:00Z,x\n")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", QUICK_JAVA)
    prepare, _, _, load = blocks(FILES, "bash")
    commands = (prepare + load).replace(STORE, postgresql_url)
    (on_a_cluster,) = blocks(DOCUMENT, "bash")
    done = shell("export DELAYSTORE_LOAD_MASTER='local[1]'\n" + commands, tmp_path)
    assert done.returncode == 0, done.stderr
    for line in (
        "a dry run: 2 messages would be loaded; nothing was written",
        "2 messages loaded in",
        "nothing to do: the load 'reminders-1' was finished at",
        '"body": "pay me"',
    ):
        assert line in done.stdout
    expected = ("done: 1 delivered", "note: 2 rows: `delaystore send --file reminders.csv`")
    assert [line for line in done.stderr.splitlines() if not line.startswith(expected)] == []
    assert count(postgresql_url) == 1
    settings = (line for line in commands.splitlines() if line.startswith("export"))
    done = shell("\n".join([*settings, on_a_cluster]), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 message loaded in")
    assert count(postgresql_url) == 2


@pytest.mark.long
def test_the_programs_run(
    spark: SparkSession, postgresql_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "incoming").mkdir()
    row = {"message_id": "a", "due_time": "2030-01-01T00:00:00Z", "body": "x"}
    (tmp_path / "incoming" / "1.json").write_text(json.dumps(row))
    for program in blocks(DOCUMENT, "python"):
        names: dict[str, Any] = {}
        exec(program.replace(STORE, postgresql_url).replace("/srv/", f"{tmp_path}/"), names)
    assert capsys.readouterr().out == "1000\n"
    assert count(postgresql_url) == 1001
