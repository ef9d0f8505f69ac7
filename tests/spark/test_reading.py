"""Spark reads what waits: all of it, as of one instant, and only what was asked for."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce

import psycopg
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from sqlalchemy import make_url

from delaystore.bulk.spark import DelaystoreDataSource
from delaystore.errors import ConfigurationError, StoreError, StoreSetupError, StoreUnavailableError
from delaystore.message import LATEST_DUE_TIME, DelayedMessage
from delaystore.stores import SqlDelayedMessageStore
from delaystore.stores.sql.bulk_partitions import PartitionLimits
from delaystore.stores.sql.codec import encode_mapping
from tests.dispatching import wait_until
from tests.integration.sql_stores import opened
from tests.long import long
from tests.spark.conftest import ODD_TIME_ZONE
from tests.spark.loads import refused

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
EXACT = ["message_id", "destination", "unix_micros(due_time)", "unix_micros(next_attempt)", "failure_count"]
VALUES = ["headers", "properties", "body"]
HOLDERS = (  # one that is being looked after is active, not idle
    "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND backend_type = 'client backend'"
    " AND datname = current_database() AND pid <> pg_backend_pid()"
)
RELEASED = HOLDERS.replace("count(*)", "pg_terminate_backend(pid)")


def reading(spark: SparkSession, url: str, **options: object) -> DataFrame:
    return spark.read.format("delaystore").options(store=url, endpoint="sales", **options).load()


def give_back_empty_pages(url: str) -> None:
    """From PostgreSQL 16 on, a COPY makes up to 64 pages at once, of which the last ones may stay empty."""
    with psycopg.connect(psycopg_url(url), autocommit=True) as connection:
        connection.execute("VACUUM")


def many(count: int, due: Callable[[int], float]) -> Iterator[DelayedMessage]:
    """Messages m00000, m00001...; `due`: seconds after noon. Every third goes to shipping, the others to billing."""
    for number in range(count):
        yield DelayedMessage(
            message_id=f"m{number:05}",
            destination="billing" if number % 3 else "shipping",
            due_time=NOON + timedelta(seconds=due(number)),
            body=b"%d" % number,
        )


def micros(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_every_column_comes_back_as_it_was_stored(spark: SparkSession, database_url: str) -> None:
    odd = {"n": 1, "nested": {"list": [1.5, None, True]}, "bytes": b"\xff", "at": NOON, "text": "ü'\"\\ 😀"}
    messages = [
        DelayedMessage(message_id="plain", destination="billing", due_time=NOON, body=b""),
        DelayedMessage(
            message_id="ö 😀 '\\",
            destination="/exchanges/é/k",
            due_time=NOON + timedelta(microseconds=1),
            body=bytes(range(256)) * 50,
            headers=odd,
            properties={"type": "x", "timestamp": NOON},
        ),
        DelayedMessage(message_id="late", destination="q", due_time=datetime(9999, 12, 30, tzinfo=UTC), body=b"\0"),
        DelayedMessage(message_id="early", destination="q", due_time=datetime(1, 1, 2, tzinfo=UTC), body=b"x"),
    ]
    with opened(database_url) as store:
        store.store_many(messages)
        with store.transaction() as claimed:
            (failed,) = (message for message in claimed.fetch_due(NOON, 10) if message.message_id == "plain")
            assert claimed.increment_failure_count(failed, NOON + timedelta(hours=1))
    rows = reading(spark, database_url).selectExpr(*EXACT, *VALUES).collect()
    expected = {
        (
            message.message_id,
            message.destination,
            micros(message.due_time),
            micros(NOON + timedelta(hours=1)) if message.message_id == "plain" else micros(message.due_time),
            1 if message.message_id == "plain" else 0,
            encode_mapping(message.headers),
            encode_mapping(message.properties),
            message.body,
        )
        for message in messages
    }
    assert {(*row[:7], bytes(row[7])) for row in rows} == expected
    assert len(rows) == len(messages)


def test_headers_are_json_for_spark(spark: SparkSession, postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        store.store_many(
            [DelayedMessage(message_id="1", destination="q", due_time=NOON, body=b"", headers={"kind": "reminder"})]
        )
    kind = reading(spark, postgresql_url).select(F.get_json_object("headers", "$.kind")).collect()
    assert kind == [("reminder",)]


@pytest.mark.long_runs("spread")
@pytest.mark.parametrize("due", [lambda number: number * 7919 % 5000, lambda number: 0.0], ids=["spread", "at once"])
def test_partitions_are_of_about_equal_size(
    spark: SparkSession, postgresql_url: str, due: Callable[[int], float]
) -> None:
    with opened(postgresql_url) as store:
        store.store_many(many(4000, due))
    give_back_empty_pages(postgresql_url)
    frame = reading(spark, postgresql_url, partitions=4)
    sizes = dict(frame.groupBy(F.spark_partition_id()).count().collect())
    assert sorted(sizes) == [0, 1, 2, 3]
    assert all(900 < size < 1100 for size in sizes.values()), sizes
    assert frame.select("message_id").distinct().count() == 4000


def test_the_table_and_its_bulk_partitions_are_read_in_the_same_parts(
    spark: SparkSession, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", PartitionLimits(fewest_rows=2000, smallest_table=0))
    with opened(postgresql_url) as store:
        store.store_many(many(1000, float))
        store.store_many([replace(one, message_id=f"more {one.message_id}") for one in many(4000, float)])
    with psycopg.connect(psycopg_url(postgresql_url)) as connection:
        assert connection.execute("SELECT count(*) FROM ONLY sales_delayed").fetchone() == (1000,)
    give_back_empty_pages(postgresql_url)
    frame = reading(spark, postgresql_url, partitions=5)
    sizes = dict(frame.groupBy(F.spark_partition_id()).count().collect())
    assert sorted(sizes) == [0, 1, 2, 3, 4]
    assert all(700 < size < 1300 for size in sizes.values()), sizes  # whole pages
    assert frame.select("message_id").distinct().count() == 5000


def test_a_small_store_is_read_in_one_partition_without_a_snapshot(spark: SparkSession, postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        store.store_many(many(100, float))
    assert reading(spark, postgresql_url).select(F.spark_partition_id()).distinct().count() == 1
    with psycopg.connect(psycopg_url(postgresql_url)) as connection:
        assert connection.execute(RELEASED).fetchall() == []


@pytest.mark.long_runs("meanwhile")
@pytest.mark.parametrize("at_once", [False, True], ids=["before", "meanwhile"])
def test_a_read_keeps_no_messages_from_a_partition(
    spark: SparkSession, postgresql_url: str, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """The read's snapshot is held for a minute, and its readers are in transactions of their own."""
    monkeypatch.setattr(SqlDelayedMessageStore, "partition_limits", PartitionLimits(fewest_rows=1000, smallest_table=0))
    with opened(postgresql_url) as store:
        store.store_many(list(many(50_000 if at_once else 900, float)))
        frame = reading(spark, postgresql_url, partitions=2)
        rows = frame.toLocalIterator()
        if at_once:
            next(rows)
        else:
            list(rows)
        with psycopg.connect(psycopg_url(postgresql_url), autocommit=True) as connection:
            assert connection.execute(HOLDERS).fetchone() != (0,)
            children = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'sales_delayed'::regclass"
            before = connection.execute(children).fetchone()
            store.store_many([replace(one, message_id=f"more {one.message_id}") for one in many(2000, float)])
            after = connection.execute(children).fetchone()
    assert before is not None
    assert after == (before[0] + 1,)


def test_an_empty_store_is_read(spark: SparkSession, database_url: str) -> None:
    with opened(database_url):
        pass
    assert reading(spark, database_url).collect() == []


def test_an_empty_store_is_read_in_several_partitions(spark: SparkSession, postgresql_url: str) -> None:
    with opened(postgresql_url):
        pass
    assert reading(spark, postgresql_url, partitions=4).collect() == []


FILTERS = {
    "due_time >= '2027-01-01 17:47:00'": lambda m, at: at >= 120,
    "due_time > timestamp '2027-01-01 12:02:00 UTC'": lambda m, at: at > 120,
    "due_time < timestamp '2027-01-01 12:02:00 UTC'": lambda m, at: at < 120,
    "due_time <= timestamp '2027-01-01 07:02:00-05:00'": lambda m, at: at <= 120,
    "due_time = timestamp '2027-01-01 12:02:00 UTC'": lambda m, at: at == 120,
    "due_time <=> timestamp '2027-01-01 12:02:00 UTC'": lambda m, at: at == 120,
    "due_time != timestamp '2027-01-01 12:02:00 UTC'": lambda m, at: at != 120,
    "due_time = timestamp_ntz '2027-01-01 17:47:00'": lambda m, at: at == 120,
    "not (due_time >= timestamp '2027-01-01 12:02:00 UTC')": lambda m, at: at < 120,
    "due_time in (timestamp '2027-01-01 12:02:00 UTC', timestamp '2027-01-01 12:03:00 UTC')": (
        lambda m, at: at in (120, 180)
    ),
    "next_attempt >= timestamp '2027-01-01 13:00:00 UTC'": lambda m, at: m == "m00001",
    "due_time >= timestamp '2027-01-01 12:00:01 UTC' and next_attempt < timestamp '2027-01-01 12:00:03 UTC'": (
        lambda m, at: at == 2
    ),
    "destination = 'shipping'": lambda m, at: int(m[1:]) % 3 == 0,
    "destination = 'it''s %s \\\\ :x'": lambda m, at: False,
    "destination <> 'shipping'": lambda m, at: int(m[1:]) % 3 != 0,
    "destination in ('shipping', 'nobody', null)": lambda m, at: int(m[1:]) % 3 == 0,
    "destination not in ('shipping', 'nobody')": lambda m, at: int(m[1:]) % 3 != 0,
    "destination > 'billing' and message_id < 'm00100'": lambda m, at: int(m[1:]) % 3 == 0 and m < "m00100",
    "message_id in ('m00001', 'm00300', 'M00001')": lambda m, at: m in ("m00001", "m00300"),
    "headers is null and properties is null": lambda m, at: True,
    "headers is not null": lambda m, at: False,
}
LEFT_TO_SPARK = {
    "destination not in ('shipping', null)": lambda m, at: False,
    "destination like 'ship%'": lambda m, at: int(m[1:]) % 3 == 0,
    "failure_count = 1": lambda m, at: m == "m00001",
    "hour(due_time) = 17 or destination = 'nobody'": lambda m, at: at < 900,
    "destination = 'shipping' or due_time < timestamp '2027-01-01 12:00:03 UTC'": (
        lambda m, at: int(m[1:]) % 3 == 0 or at < 3
    ),
    "message_id in (" + ", ".join(f"'m{number:05}'" for number in range(300)) + ")": lambda m, at: m < "m00300",
}


@pytest.fixture(scope="module")
def filtered_urls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Stores of each kind with 400 messages, a second apart; m00001 has failed once, and is shown an hour later."""
    servers = {name: request.getfixturevalue(name) for name in ("postgresql", "mariadb")}
    urls = {name: server.create_database() for name, server in servers.items()}
    urls["sqlite"] = f"sqlite:///{tmp_path_factory.mktemp('filters') / 'app.db'}"
    for url in urls.values():
        with opened(url) as store:
            store.store_many(many(400, float))
            with store.transaction() as claimed:
                (failed,) = (one for one in claimed.fetch_due(LATEST_DUE_TIME, 400) if one.message_id == "m00001")
                assert claimed.increment_failure_count(failed, NOON + timedelta(hours=1))
    yield urls
    for name, server in servers.items():
        server.drop_database(urls[name])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["postgresql", long("mariadb"), long("sqlite")])
def test_filters_find_what_they_say(spark: SparkSession, filtered_urls: dict[str, str], kind: str) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == ODD_TIME_ZONE  # 17:47 there is 12:02 UTC
    waiting = [(f"m{number:05}", number) for number in range(400)]
    conditions = {**FILTERS, **LEFT_TO_SPARK}
    frames = [
        reading(spark, filtered_urls[kind], pushFilters=True).where(condition).select(F.lit(condition), "message_id")
        for condition in conditions
    ]
    found: dict[str, set[str]] = {condition: set() for condition in conditions}
    for condition, message_id in reduce(DataFrame.union, frames).coalesce(1).collect():
        found[condition].add(message_id)
    for condition, holds in conditions.items():
        assert found[condition] == {name for name, at in waiting if holds(name, at)}, condition


def test_filters_are_applied_by_the_database(spark: SparkSession, filtered_urls: dict[str, str]) -> None:
    frame = reading(spark, filtered_urls["sqlite"], pushFilters=True)
    for condition in FILTERS:
        assert optimized(frame.where(condition)).startswith("RelationV2"), condition
    for condition in LEFT_TO_SPARK:
        assert not optimized(frame.where(condition)).startswith("RelationV2"), condition


def test_a_message_whose_next_attempt_is_before_it_is_due_is_found(spark: SparkSession, database_url: str) -> None:
    early = DelayedMessage(
        message_id="early", destination="q", due_time=NOON, next_attempt=NOON - timedelta(days=1), body=b""
    )
    with opened(database_url) as store:
        store.store(early)
    frame = reading(spark, database_url, pushFilters=True).where("due_time >= timestamp '2027-01-01 12:00:00 UTC'")
    assert [row.message_id for row in frame.collect()] == ["early"]


def test_filters_hold_in_several_partitions(spark: SparkSession, filtered_urls: dict[str, str]) -> None:
    frame = reading(spark, filtered_urls["postgresql"], partitions=3, pushFilters=True)
    frame = frame.where("destination = 'shipping'")
    sizes = [row["count"] for row in frame.groupBy(F.spark_partition_id()).count().collect()]
    assert sum(sizes) == 134
    assert len(sizes) == 3


def test_one_frame_serves_several_queries(spark: SparkSession, filtered_urls: dict[str, str]) -> None:
    """Spark keeps what was planned last with a loaded relation: pushed filters would hold in the others, too."""
    frame = reading(spark, filtered_urls["postgresql"], partitions=2)
    billing, shipping = (frame.where(f"destination = '{queue}'") for queue in ("billing", "shipping"))
    assert shipping.count() == 134
    assert frame.count() == 400
    by_destination = billing.union(shipping).groupBy("destination").count()
    assert dict(by_destination.collect()) == {"billing": 266, "shipping": 134}
    assert shipping.join(frame, "message_id").count() == 134


def test_a_schema_of_ones_own_reads_just_its_columns(spark: SparkSession, filtered_urls: dict[str, str]) -> None:
    for url in filtered_urls.values():
        reader = spark.read.format("delaystore").options(store=url, endpoint="sales")
        frame = reader.schema("due_time timestamp, message_id string").load()
        assert frame.columns == ["due_time", "message_id"]
        rows = frame.select(F.unix_seconds("due_time"), "message_id").collect()
        assert sorted(rows) == [(int(NOON.timestamp()) + number, f"m{number:05}") for number in range(400)]
    for schema, words in {"colour string": "'colour'", "due_time string": "of type timestamp"}.items():
        with refused(ConfigurationError, words):
            reader.schema(schema).load().collect()


def test_a_read_in_parts_is_of_one_instant(spark: SparkSession, postgresql_url: str) -> None:
    """Messages move from the first part to the last all the while; at each instant there are as many of them."""
    with opened(postgresql_url) as store:
        store.store_many(many(5000, float))
        expected = (5000, sum(range(5000)))
        totals = F.count("*"), F.sum(F.col("body").cast("string").cast("long"))
        with moving(postgresql_url) as moved:
            for _ in range(2):
                before = moved()
                assert tuple(reading(spark, postgresql_url, partitions=6).agg(*totals).collect()[0]) == expected
                assert moved() > before
        assert reading(spark, postgresql_url, partitions=6).count() == store.count()


@contextmanager
def moving(url: str) -> Iterator[Callable[[], int]]:
    """Dispatch what is due first, and send it anew for much later, in one transaction each; how many until now."""
    stop, count = threading.Event(), [0]

    def move() -> None:
        with opened(url) as store:
            while not stop.is_set():
                with store.transaction() as transaction:
                    first = transaction.fetch_due(NOON + timedelta(days=30), 20)
                    assert transaction.remove_many(first) == len(first)
                    transaction.store_many(
                        DelayedMessage(
                            message_id=message.message_id,
                            destination=message.destination,
                            due_time=message.due_time + timedelta(seconds=5000),
                            body=message.body,
                        )
                        for message in first
                    )
                count[0] += len(first)

    thread = threading.Thread(target=move, name="mover")
    thread.start()
    try:
        yield lambda: count[0]
    finally:
        stop.set()
        thread.join()


@pytest.mark.long
def test_a_snapshot_that_has_gone_is_told_in_one_line(spark: SparkSession, postgresql_url: str) -> None:
    with opened(postgresql_url) as store:
        store.store_many(many(1000, float))
    frame = reading(spark, postgresql_url, partitions=2)
    assert len(frame.collect()) == 1000
    assert len(frame.collect()) == 1000  # planned once, read twice
    with psycopg.connect(psycopg_url(postgresql_url)) as connection:
        assert connection.execute(RELEASED).fetchall() == [(True,)]
    with refused(StoreError, "snapshot", "load() the DataFrame again"):
        frame.collect()
    assert reading(spark, postgresql_url, partitions=2).count() == 1000


def test_a_frame_that_has_rested_is_read_from_another_snapshot(
    spark: SparkSession, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(postgresql_url) as store, psycopg.connect(psycopg_url(postgresql_url), autocommit=True) as connection:
        store.store_many(many(1000, float))
        frame = reading(spark, postgresql_url, partitions=4)
        assert len(frame.collect()) == 1000
        store.store(DelayedMessage(message_id="new", destination="billing", due_time=NOON, body=b""))
        assert len(frame.collect()) == 1000  # still of that instant
        monkeypatch.setattr("delaystore.bulk.spark._driver_service.IDLE", 0.0)
        wait_until(lambda: connection.execute(HOLDERS).fetchall() == [(0,)])
        monkeypatch.undo()
        assert len(frame.collect()) == 1001
        assert connection.execute(HOLDERS).fetchall() == [(1,)]


def test_mistakes_are_told_in_one_line(spark: SparkSession, postgresql_url: str, sqlite_url: str) -> None:
    nowhere = make_url(postgresql_url).set(port=1).render_as_string(hide_password=False)
    with refused(ConfigurationError, "colour", "unknown"):
        reading(spark, postgresql_url, colour="red")
    with refused(ConfigurationError, "endpoint"):
        spark.read.format("delaystore").options(store=postgresql_url).load()
    with refused(ConfigurationError, "memory"):
        reading(spark, "memory://")
    with refused(ConfigurationError, "only PostgreSQL"):
        reading(spark, sqlite_url, partitions=2).count()
    with refused(StoreSetupError, "delaystore setup"):
        reading(spark, postgresql_url).count()
    with refused(StoreSetupError, "delaystore setup"):
        reading(spark, sqlite_url).count()
    with refused(StoreUnavailableError, "refused"):
        reading(spark, nowhere).count()


def test_a_temporary_view_shows_what_waits(spark: SparkSession, filtered_urls: dict[str, str]) -> None:
    where = f"USING delaystore OPTIONS (store '{filtered_urls['postgresql']}', endpoint 'sales')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW waiting {where}")
    try:
        assert spark.sql("SELECT count(*) FROM waiting").collect() == [(400,)]
        assert spark.table("waiting").columns == reading(spark, filtered_urls["postgresql"]).columns
    finally:
        spark.catalog.dropTempView("waiting")


@pytest.mark.long
def test_a_table_is_refused_when_it_is_made_or_when_it_is_read(
    spark: SparkSession, filtered_urls: dict[str, str]
) -> None:
    where = f"USING delaystore OPTIONS (store '{filtered_urls['postgresql']}', endpoint 'sales')"
    with refused(ConfigurationError, "CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE waiting {where}")
    with refused(ConfigurationError, "CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE waiting {where} AS SELECT 'a' AS message_id")
    assert not spark.catalog.tableExists("waiting")
    spark.sql(f"CREATE TABLE waiting (message_id string) {where}")  # of which Spark tells nobody
    try:
        with refused(ConfigurationError, "CREATE TEMPORARY VIEW"):
            spark.table("waiting").count()
        with refused(ConfigurationError, "CREATE TEMPORARY VIEW"):
            spark.sql("INSERT INTO waiting SELECT 'a'")
    finally:
        spark.sql("DROP TABLE waiting")


def test_plans_show_no_password(spark: SparkSession, filtered_urls: dict[str, str]) -> None:
    url = filtered_urls["postgresql"]
    frame = reading(spark, url, partitions=2)
    plan = frame._jdf.queryExecution().toString()
    assert str(make_url(url).password) not in plan
    assert "delaystore" in plan


@pytest.mark.long
def test_a_source_registered_by_hand_reads_in_one_partition(spark: SparkSession, filtered_urls: dict[str, str]) -> None:
    class ByHand(DelaystoreDataSource):
        @classmethod
        def name(cls) -> str:
            return "byhand"

    spark.dataSource.register(ByHand)
    reader = spark.read.format("byhand").options(store=filtered_urls["postgresql"], endpoint="sales")
    assert reader.load().select(F.spark_partition_id()).distinct().collect() == [(0,)]
    assert reader.load().count() == 400
    with refused(ConfigurationError, "register(spark)", "Spark Connect"):
        reader.option("partitions", 2).load().count()


@pytest.mark.soak
def test_a_snapshot_lives_as_long_as_the_tasks_that_need_it(spark: SparkSession, postgresql_url: str) -> None:
    """Three rounds of tasks of 70 s each: the last begins to read 140 s after the planning."""
    with opened(postgresql_url) as store:
        store.store_many(many(600, float))

        def slowly(rows: Iterator[Row]) -> Iterator[int]:
            import time

            numbers = [int(row.body) for row in rows]
            time.sleep(70)
            return iter(numbers)

        with moving(postgresql_url):
            numbers = reading(spark, postgresql_url, partitions=6).rdd.mapPartitions(slowly).collect()
    assert sorted(numbers) == list(range(600))


def psycopg_url(url: str) -> str:
    return url.replace("+psycopg", "")


def optimized(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan())
