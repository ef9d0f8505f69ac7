"""A Spark session, rows in Parquet files, and copies of a store in which rows wait already."""

import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import make_url

from benchmarks.arena import Arena, dsn_of
from benchmarks.bench import BODY_BYTES, ENDPOINT
from benchmarks.filling import FROM_IN, OVER
from delaystore.bulk.spark import register

TABLE: Final = f"{ENDPOINT}_delayed"
PARTITIONS: Final = 4
"""Files to load from, and partitions to read by."""
JDBC_JAR: Final = Path("/usr/share/java/postgresql.jar")

Row = tuple[str, str, datetime, bytes]


@contextmanager
def session() -> Iterator[SparkSession]:
    """Spark on two threads of this machine, with delaystore registered and PostgreSQL's JDBC driver."""
    if not JDBC_JAR.exists():
        raise RuntimeError(f"{JDBC_JAR} is missing; `make servers` installs it")
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    with TemporaryDirectory(prefix="delaystore-spark-") as folder:
        builder = SparkSession.builder.master("local[2]").appName("benchmarks")
        for name, value in {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "3g",
            "spark.jars": str(JDBC_JAR),
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        try:
            register(spark)
            yield spark
        finally:
            spark.stop()


def random_rows(count: int, seed: int) -> Iterator[Row]:
    """Rows as campaigns have them: random ids, due at random moments of the time in which the waiting ones are."""
    source = random.Random(seed)  # repeatable data, no secret
    first = datetime.now(UTC).replace(microsecond=0) + FROM_IN
    seconds = int(OVER.total_seconds())
    for _ in range(count):
        message_id = str(UUID(int=source.getrandbits(128), version=4))
        yield message_id, "billing", first + timedelta(seconds=source.randrange(seconds)), source.randbytes(BODY_BYTES)


def write_files(folder: Path, rows: Sequence[Row], files: int = PARTITIONS) -> str:
    """The rows as Parquet files; the folder."""
    names = ("message_id", "destination", "due_time", "body")
    share = -(-len(rows) // files)
    for number in range(files):
        part = rows[number * share : (number + 1) * share]
        columns: dict[str, list[Any]] = {name: [row[index] for row in part] for index, name in enumerate(names)}
        table = pa.table({**columns, "due_time": pa.array(columns["due_time"], pa.timestamp("us", "UTC"))})
        pq.write_table(table, folder / f"part-{number}.parquet")
    return str(folder)


@contextmanager
def copied(arena: Arena, url: str) -> Iterator[str]:
    """The URL of a copy of a database to which nobody is connected, file by file: the same for each round."""
    copy = arena.postgresql.create_database()
    arena.postgresql.drop_database(copy)
    made, origin = make_url(copy).database or "", make_url(url).database or ""
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
    with psycopg.connect(dsn_of(arena.postgresql.url), autocommit=True) as connection:
        connection.execute(statement.format(sql.Identifier(made), sql.Identifier(origin)))
    arena.checkpoint()
    try:
        yield copy
    finally:
        arena.postgresql.drop_database(copy)


def copy_rows(connection: psycopg.Connection, rows: Iterator[Row] | Sequence[Row]) -> None:
    """One binary COPY into the table in which messages wait; the caller commits."""
    columns = "message_id, destination, due_time, next_attempt, failure_count, body"
    with connection.cursor() as cursor, cursor.copy(f"COPY {TABLE} ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["text", "text", "timestamptz", "timestamptz", "int4", "bytea"])
        for message_id, destination, due_time, body in rows:
            copy.write_row((message_id, destination, due_time, due_time, 0, body))


def load(frame: DataFrame, url: str, load_id: str) -> None:
    """Ours: exactly once."""
    writer = frame.write.format("delaystore").option("store", url).option("endpoint", ENDPOINT)
    writer.option("loadId", load_id).mode("append").save()


def jdbc_options(url: str) -> dict[str, str]:
    """Spark's own, as one would set it up to be fast."""
    parts = make_url(url)
    return {
        "url": f"jdbc:postgresql://{parts.host}:{parts.port}/{parts.database}?reWriteBatchedInserts=true",
        "user": str(parts.username),
        "password": str(parts.password),
        "driver": "org.postgresql.Driver",
        "dbtable": TABLE,
    }


def jdbc_write(frame: DataFrame, url: str) -> None:
    """The peer: batched inserts, two connections, no promise what a retry does."""
    rows = frame.selectExpr("message_id", "destination", "due_time", "due_time AS next_attempt", "body")
    rows.write.format("jdbc").options(**jdbc_options(url), batchsize="10000").mode("append").save()


def count_rows(url: str) -> int:
    """How many wait."""
    with psycopg.connect(dsn_of(url)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall()[0][0])
