"""Tasks, workers, drivers and databases that die during a load: the same load, run again, leaves each message once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import create_engine, text

from tests.faults.patience import wait_until
from tests.integration.sql_stores import execute, query
from tests.servers import PostgreSQL, PostgreSQLDatabases
from tests.servers.ports import free_port
from tests.spark.cluster import Cluster
from tests.spark.driver import slow
from tests.spark.driving import Driver
from tests.spark.gates import opened
from tests.spark.loads import (
    TABLE,
    checksum_here,
    checksum_there,
    count,
    load,
    rows,
    rows_through,
    staged_rows,
    staging_tables,
)

ROWS = 2000


@pytest.fixture
def url(postgresql_url: str) -> Iterator[str]:
    """A database in which nothing but the promoted messages is left."""
    yield postgresql_url
    assert_nothing_is_left(postgresql_url)


@pytest.fixture
def three_urls(postgresql: PostgreSQLDatabases) -> Iterator[list[str]]:
    """Three such databases."""
    urls = [postgresql.create_database() for _ in range(3)]
    yield urls
    for url in urls:
        assert_nothing_is_left(url)
        postgresql.drop_database(url)


def assert_nothing_is_left(url: str) -> None:
    assert not staging_tables(url)
    assert not query(url, f"SELECT load_id FROM {TABLE}_loads WHERE token IS NOT NULL")


@contextmanager
def transaction(url: str, statement: str) -> Iterator[None]:
    """A transaction of somebody else's that goes on for as long as the block."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            connection.execute(text(statement))
            yield
            connection.rollback()
    finally:
        engine.dispose()


@pytest.mark.long
def test_tasks_that_fail_and_workers_that_are_killed_are_repeated(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    """What their first attempts staged is not promoted; their rows are so large that some of it was copied."""
    large = {"count": 150, "padding": 2**19, "parts": 1}  # 75 MB, of which 64 MB are copied before the end
    jobs: list[dict[str, Any]] = [
        {"url": url, "mapper": "failing", "load_id": "failing", **large},
        {"url": url, "mapper": "killing", "load_id": "killing", "marks": str(tmp_path), "count": ROWS, "parts": 4},
    ]
    jobs[1]["options"] = {"endpoint": "other"}
    with Driver(master="local[2,3]", jobs=jobs, conf={"spark.sql.execution.arrow.maxRecordsPerBatch": "20"}) as driver:
        driver.wait_for("started")
        wait_until(lambda: staged_rows(url) > 0, "a first attempt has staged")
        driver.wait_for("done")
        assert checksum_there(url) == checksum_here(rows_through(spark, 150, 2, 2**19, iter))
        driver.wait_for("done")
    assert (tmp_path / "killed").exists()
    assert checksum_there(url, "other_delayed") == checksum_here(rows(spark, ROWS))


@pytest.mark.long
def test_a_driver_killed_before_during_and_after_promotions(spark: SparkSession, three_urls: list[str]) -> None:
    """Before: a task still has rows. During: somebody is about to send one of the messages, which the promotion awaits.

    After, but before the load returns: somebody reads the staging, which therefore cannot be dropped at once.
    """
    before, during, after = three_urls
    jobs: list[dict[str, Any]] = [
        {"mapper": "held_back", "gate": free_port(), "url": url, "load_id": "l", "count": ROWS} for url in three_urls
    ]
    values = "'m7', 'billing', now(), now(), 0, ''"
    columns = "message_id, destination, due_time, next_attempt, failure_count, body"
    with Driver(master="local[6]", jobs=jobs, at_once=True) as driver:
        driver.wait_for("started")
        for url in three_urls:
            wait_until(lambda url=url: staged_rows(url) >= ROWS / 2, "a task has staged")
        (staging,) = staging_tables(after)
        with (
            transaction(during, f"INSERT INTO {TABLE} ({columns}) VALUES ({values})"),
            transaction(after, f'SELECT * FROM "{staging}" LIMIT 1'),
            opened(jobs[1]["gate"]),
            opened(jobs[2]["gate"]),
        ):
            waits = (
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                f" AND query LIKE 'INSERT INTO%{TABLE}%'"
            )
            wait_until(lambda: query(during, waits), "the promotion waits")
            wait_until(lambda: count(after) == ROWS, "the promotion is committed")
            driver.kill()
            assert staging_tables(after) == {staging}
    assert count(before) == 0
    execute(after, f"DELETE FROM {TABLE}")  # dispatched meanwhile
    for url in three_urls:
        load(rows(spark, ROWS), url, loadId="l")  # at once: its owner is known to be dead
    for url in (before, during):
        assert checksum_there(url) == checksum_here(rows(spark, ROWS))
    assert count(after) == 0


@pytest.mark.long
def test_postgresql_killed_and_restarted_in_the_middle_of_loads(
    spark: SparkSession, private_postgresql: PostgreSQL
) -> None:
    """Killed or restarted: the staging is kept, and the load need not fail; or a task's connection breaks."""
    jobs: list[dict[str, Any]] = [
        {
            "mapper": "held_back",
            "gate": free_port(),
            "url": private_postgresql.create_database(),
            "load_id": "l",
            "count": ROWS,
        }
        for _ in range(2)
    ]
    with Driver(jobs=jobs) as driver:
        driver.wait_for("started")
        killed = said_after(driver, jobs[0], private_postgresql, private_postgresql.kill)
        assert killed == "done" or killed.startswith("failed: "), killed
        assert count(jobs[0]["url"]) == (ROWS if killed == "done" else 0)
        restarted = said_after(driver, jobs[1], private_postgresql, private_postgresql.stop)
        assert restarted == "done" or restarted.startswith("failed: the"), restarted
    for job in jobs:
        load(rows(spark, ROWS), job["url"], loadId="l")
        assert checksum_there(job["url"]) == checksum_here(rows(spark, ROWS))
        assert not staging_tables(job["url"])


def said_after(driver: Driver, job: dict[str, Any], server: PostgreSQL, fault: Callable[[], None]) -> str:
    """What the driver says of a load whose database ends by `fault`, and starts again, once a task has staged."""
    wait_until(lambda: staged_rows(job["url"]) >= ROWS / 2, "a task has staged")
    fault()
    server.start()
    with opened(job["gate"]):
        return driver.said()


SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
}


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_speculation_and_a_killed_executor(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """A second attempt of the slow task wins, while the first one's rows are staged, too; then an executor dies."""
    gate = free_port()
    jobs: list[dict[str, Any]] = [
        {"url": url, "mapper": "slow", "slow": 240, "load_id": "speculated", "count": 600, "parts": 4},
        {"url": url, "mapper": "held_back", "gate": gate, "load_id": "executor", "count": ROWS, "parts": 4},
    ]
    with Cluster(tmp_path) as cluster, Driver(master=cluster.url, conf=SPECULATING, jobs=jobs) as driver:
        driver.wait_for("started")
        wait_until(lambda: attempts(url) > 4, "two attempts of one task have staged", 240)
        driver.wait_for("done")
        assert checksum_there(url) == checksum_here(rows_through(spark, 600, 4, 0, slow(0)))
        execute(url, f"DELETE FROM {TABLE}")
        wait_until(lambda: staged_rows(url) >= ROWS / 4, "a task has staged")
        cluster.executors()[0].kill()
        with opened(gate):
            driver.wait_for("done")
    assert checksum_there(url) == checksum_here(rows(spark, ROWS))


def attempts(url: str) -> int:
    return sum(query(url, f'SELECT count(DISTINCT attempt) FROM "{name}"')[0][0] for name in staging_tables(url))
