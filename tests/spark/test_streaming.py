"""Streams into a store: each batch once, across restarts from the checkpoint."""

import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from delaystore.bulk.spark import register
from delaystore.errors import ConfigurationError, DuplicateMessageError, LoadLostError, RejectedRowsError
from delaystore.settings import TransactionMode
from delaystore.stores.records import Ending
from delaystore.stores.sql import SqlDelayedMessageStore
from tests.faults.scale import scaled
from tests.integration.sql_stores import execute, query
from tests.spark.driving import Driver
from tests.spark.loads import (
    ENDPOINT,
    NOON,
    TABLE,
    checksum_here,
    checksum_there,
    count,
    refused,
    rows,
    staging_tables,
    waiting,
)

A_FILE = 40  # rows


@pytest.fixture
def url(postgresql_url: str) -> Iterator[str]:
    """A database in which no load leaves a row staged that was promoted or given up."""
    yield postgresql_url
    for name in staging_tables(postgresql_url):
        assert query(postgresql_url, f'SELECT count(*) FROM "{name}"')[0][0] == 0


class Source:
    """A folder of files, each of which becomes a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._files = 0
        self.checkpoint = folder / "checkpoint"
        (folder / "in").mkdir()

    def add(self, files: int = 1) -> None:
        """Put the next messages there."""
        for _ in range(files):
            table = rows(self._spark, A_FILE, start=self._files * A_FILE, parts=1).toArrow()
            self.put(table, f"{self._files:05}")
            self._files += 1

    def put(self, table: Any, name: str) -> None:
        """A file appears at once, and complete."""
        from pyarrow import parquet

        parquet.write_table(table, self._folder / "in" / f".{name}")
        (self._folder / "in" / f".{name}").rename(self._folder / "in" / f"{name}.parquet")

    @property
    def ids(self) -> list[str]:
        """Of all messages that were put there by `add`."""
        return sorted(f"m{number}" for number in range(self._files * A_FILE))

    @property
    def frame(self) -> DataFrame:
        """The stream of the folder."""
        schema = rows(self._spark, 1).schema
        return self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self._folder / "in"))

    def run(self, url: str, frame: DataFrame | None = None, **options: Any) -> None:
        """All that is there now, in batches of a file each; then the query ends."""
        given = {"store": url, "endpoint": ENDPOINT, "checkpointLocation": str(self.checkpoint), **options}
        stream = (self.frame if frame is None else frame).writeStream.format("delaystore").options(**given)
        running = stream.trigger(availableNow=True).start()
        try:
            assert running.awaitTermination(240), "the query does not end"
        finally:
            running.stop()

    def forget_last_commit(self) -> None:
        """As if the driver had died before Spark noted that the last batch is done."""
        last = max(path for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path)


@pytest.mark.long
def test_batches_are_stored_once_across_restarts(source: Source, url: str) -> None:
    source.add(2)
    source.run(url)
    assert waiting(url) == source.ids
    assert checksum_there(url) == checksum_here(source._spark.read.parquet(str(source._folder / "in")))
    source.add()
    source.run(url)
    assert waiting(url) == source.ids
    assert len(staging_tables(url)) == 1  # the query's, for its next batch


def test_a_batch_that_was_stored_is_not_stored_again_after_a_crash(source: Source, url: str) -> None:
    source.add(2)
    source.run(url)
    execute(url, f"DELETE FROM {TABLE}")  # dispatched meanwhile
    source.forget_last_commit()
    source.run(url)
    assert count(url) == 0
    source.add()
    source.forget_last_commit()
    source.run(url)
    assert count(url) == A_FILE


@pytest.mark.long
def test_an_older_checkpoint_ends_the_query_and_loses_nothing_unsaid(source: Source, url: str, tmp_path: Path) -> None:
    source.add()
    source.run(url)
    kept = tmp_path / "kept"
    shutil.copytree(source.checkpoint, kept)
    source.add(2)
    source.run(url)
    for missing in (source.checkpoint, *(tmp_path / "in").glob("00002*")):
        shutil.rmtree(missing) if missing.is_dir() else missing.unlink()
    shutil.copytree(kept, source.checkpoint)
    with refused(LoadLostError, "the checkpoint is older than the store"):
        source.run(url)
    assert count(url) == 3 * A_FILE


@pytest.mark.long
def test_queries_do_not_take_each_others_batches_for_their_own(
    spark: SparkSession, url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Both have a batch 0, at once."""
    one, other = (Source(spark, tmp_path_factory.mktemp("source")) for _ in range(2))
    one.add(2)
    for number in range(2):
        other.put(rows(spark, A_FILE, start=1000 + number * A_FILE, parts=1).toArrow(), str(number))
    with ThreadPoolExecutor(2, initializer=register, initargs=(spark,)) as threads:
        for done in [threads.submit(source.run, url) for source in (one, other)]:
            done.result(240)
    assert waiting(url) == sorted(one.ids + [f"m{number}" for number in range(1000, 1000 + 2 * A_FILE)])


@pytest.mark.long
def test_bad_rows_stop_the_query_until_they_may_be_rejected(
    source: Source, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source.add()
    frame = source.frame.selectExpr("*").replace({"shipping": ""}, subset=["destination"])
    with refused(RejectedRowsError, "13 rows cannot be messages", "destination"):
        source.run(url, frame)
    assert count(url) == 0
    source.run(url, frame, rejects=str(tmp_path / "rejects"))
    assert len(waiting(url)) == A_FILE - 13
    assert "13 rows cannot be messages: 13 x destination" in caplog.text
    rejected = source._spark.read.json(str(tmp_path / "rejects" / "*"))
    assert rejected.where("reason LIKE 'destination%' AND destination = ''").count() == 13
    source.forget_last_commit()
    source.run(url, frame, rejects=str(tmp_path / "rejects"))
    assert source._spark.read.json(str(tmp_path / "rejects" / "*")).count() == 13


@pytest.mark.long
def test_duplicates_stop_the_query_and_nothing_of_the_batch_is_stored(source: Source, url: str) -> None:
    source.add()
    source.run(url)
    source.put(rows(source._spark, A_FILE, start=A_FILE - 1, parts=1).toArrow(), "99999")
    with refused(DuplicateMessageError, f"'m{A_FILE - 1}'"):
        source.run(url)
    assert waiting(url) == source.ids
    source.run(url, onDuplicate="ignore")
    assert count(url) == 2 * A_FILE - 1


@pytest.mark.long
def test_a_stream_skips_messages_that_were_delivered(source: Source, url: str) -> None:
    source.add()
    with closing(SqlDelayedMessageStore(url)) as store:
        store.initialize(ENDPOINT, TransactionMode.NONE)
        store.setup_infrastructure()
        store.keep_history(timedelta(days=30))
        source.run(url, ifDelivered="skip")
        with store.transaction() as bound:
            bound.remove_ended(bound.fetch_due(NOON + timedelta(days=1), A_FILE), Ending.DELIVERED, bound.now())
    assert count(url) == 0
    source.put(rows(source._spark, A_FILE, start=A_FILE - 1, parts=1).toArrow(), "99999")
    source.run(url, ifDelivered="skip")
    assert count(url) == A_FILE - 1


def test_what_cannot_work_is_said_at_once(source: Source, url: str) -> None:
    source.add()
    with refused(ConfigurationError, "loadId"):
        source.run(url, loadId="x")
    with refused(ConfigurationError, "destination"):
        source.run(url, source.frame.drop("destination"))
    counted = source.frame.groupBy("destination").count()
    with refused(ConfigurationError, "append"):
        given = {"store": url, "endpoint": ENDPOINT, "checkpointLocation": str(source.checkpoint)}
        stream = counted.writeStream.outputMode("complete").format("delaystore").options(**given)
        stream.trigger(availableNow=True).start().awaitTermination(240)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_driver_killed_at_random_moments_leaves_each_message_once(source: Source, url: str, tmp_path: Path) -> None:
    files, kills = scaled((5, 1), (60, 12))
    source.add(files)
    chance = random.Random(4)
    places = {"folder": str(tmp_path / "in"), "checkpoint": str(source.checkpoint)}
    job: dict[str, Any] = {"job": "stream", "url": url, **places}
    for _ in range(kills):
        with Driver(**job) as driver:
            driver.wait_for("started")
            time.sleep(chance.uniform(1, 6))
            driver.kill()
    source.run(url)
    assert waiting(url) == source.ids
    finished = query(url, f"SELECT batch FROM {TABLE}_loads")
    assert [tuple(row) for row in finished] == [(files - 1,)]
