"""Spark spreads, moves and previews as `send --file` does, and divides the limit of a load's rate by its tasks."""

import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError
from delaystore.stores import SqlDelayedMessageStore
from tests.integration.cli import CommandLine
from tests.spark.loads import count, load, refused

AT = "2030-01-07T08:00:00Z"
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "Mars/Olympus")
OPTIONS = {"spread": "4h", "ramp": "1h", "window": "mon-fri 09:00-18:00", "zoneColumn": "zone"}
TYPED = ("--spread", "4h", "--ramp", "1h", "--window", "mon-fri 09:00-18:00", "--zone-column", "zone")


@pytest.fixture
def run(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    for name, value in {"ENDPOINT": "sales", "SEND_CREATE": "1", "LOAD_CREATE": "1"}.items():
        monkeypatch.setenv(f"DELAYSTORE_{name}", value)
    return CommandLine(capsys, {})


def frame(spark: SparkSession, rows: int, parts: int = 3) -> DataFrame:
    zones = ", ".join(f"'{zone}'" for zone in ZONES[:3])
    return spark.range(0, rows, 1, parts).selectExpr(
        "cast(id AS string) AS message_id",
        "'q' AS destination",
        f"timestamp '{AT}' AS due_time",
        f"element_at(array({zones}), cast(id % 3 AS int) + 1) AS zone",
        "'x' AS body",
    )


def write(rows: int) -> None:
    lines = (f"{n},{AT},{ZONES[n % len(ZONES)]},x\n" for n in range(rows))
    Path("a.csv").write_text("message_id,due_time,zone,body\n" + "".join(lines))


def due_times(url: str) -> dict[str, datetime]:
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(url))) as delivery:
        return {message.message_id: message.due_time for message in delivery.list(limit=1000).messages}


def test_a_data_frame_a_stream_and_a_file_are_spread_the_same(
    spark: SparkSession, run: CommandLine, tmp_path: Path, sqlite_url: str, postgresql_url: str
) -> None:
    load(frame(spark, 60), sqlite_url, **OPTIONS)
    from_frame = due_times(sqlite_url)
    frame(spark, 60).coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame(spark, 1).schema).parquet(str(tmp_path / "in"))
    given = {"store": postgresql_url, "endpoint": "sales", "checkpointLocation": str(tmp_path / "checkpoint")}
    query = stream.writeStream.format("delaystore").options(**given, **OPTIONS).trigger(availableNow=True).start()
    query.awaitTermination()
    assert due_times(postgresql_url) == from_frame
    (file,) = map(str, (tmp_path / "in").glob("*.parquet"))
    url = f"sqlite:///{tmp_path / 'sent.db'}"
    assert run("send", "--file", file, *TYPED, "--store", url).code == 0
    assert due_times(url) == from_frame
    assert len(set(from_frame.values())) == 60


def test_the_previews_of_both_commands_are_the_same(run: CommandLine, sqlite_url: str) -> None:
    write(400)
    with closing(DelayedDelivery("sales", SqlDelayedMessageStore(sqlite_url))) as delivery:
        delivery.send("q", b"x", at=datetime.fromisoformat("2030-01-07T09:00:30+00:00"), message_id="0")
        delivery.operations.limit_rate("q", 1 / 60)
    files: dict[str, tuple[str, ...]] = {
        "load": ("load", "a.csv", "--destination", "q"),
        "send": ("send", "q", "--file", "a.csv"),
    }
    found: dict[str, dict[str, Any]] = {}
    for name, command in files.items():
        for option in ("--preview", "--dry-run"):
            tried = run(*command, *TYPED, "--store", sqlite_url, option, "--json")
            assert tried.code == int(option == "--dry-run"), tried.err  # rows are rejected
            found[f"{name} {option}"] = tried.document
    preview = found["send --preview"]["preview"]
    assert sum(minute["rows"] for minute in preview["minutes"]) == 300
    assert sum(minute["waiting"] for minute in preview["minutes"]) == 1
    assert preview["destinations"][0]["first_exceeded"] is not None
    for document in found.values():
        assert document["preview"] == preview
        assert document["rejected"] == 100
    assert found["load --preview"]["duplicates"] is None
    assert found["load --dry-run"]["duplicates"]["waiting"] == 1
    shown = run("load", "a.csv", "--destination", "q", *TYPED, "--store", sqlite_url, "--preview", "--plot", "a.png")
    assert "a preview: 300 messages, without a search for duplicates; nothing was written" in shown.out
    assert "100 rows would be rejected:\n  100 x time zone is unknown" in shown.out
    assert Path("a.png").stat().st_size > 1000
    assert len(due_times(sqlite_url)) == 1


def test_the_limit_of_a_rate_is_divided_among_tasks(spark: SparkSession, sqlite_url: str) -> None:
    tasks = spark.sparkContext.defaultParallelism
    assert tasks == 2
    began = time.monotonic()
    load(frame(spark, 120, parts=1).drop("zone"), sqlite_url, maxRowsPerSecond="60")
    assert time.monotonic() - began >= (120 - 3) / 30  # one task, which has half of it, and may begin with 3
    assert count(sqlite_url) == 120


def test_mistakes_in_options_of_spark_are_named_as_there(spark: SparkSession, sqlite_url: str) -> None:
    with refused(ConfigurationError, "the option ramp is a part of the option spread"):
        load(frame(spark, 1), sqlite_url, ramp="1h")
    with refused(ConfigurationError, "the option window needs zones; set the option timeZone or the option zoneColumn"):
        load(frame(spark, 1), sqlite_url, window="08:00-20:00", unknownColumns="headers")
    assert count(sqlite_url) == 0
