"""What the tests of writing share: rows, loads, and what a database holds of them, looked at without delaystore."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from delaystore.bulk.spark._errors import plain_error
from delaystore.errors import DelaystoreError
from tests.integration.sql_stores import all_tables, query

ENDPOINT: Final = "sales"
TABLE: Final = "sales_delayed"
NOON: Final = datetime(2027, 1, 1, 12, tzinfo=UTC)
Mapper = Callable[[Iterable[Any]], Iterable[Any]]
DIGEST: Final = "substring(md5(concat_ws('|', {})), 1, 15)"
OF_SPARK: Final = "message_id, destination, cast(unix_micros(due_time) as string), hex(body)"
OF_POSTGRESQL: Final = (
    "message_id, destination, ((extract(epoch FROM due_time) * 1000000)::bigint)::text, upper(encode(body, 'hex'))"
)


def rows(spark: SparkSession, count: int, *, start: int = 0, parts: int = 3, due: str = "id * 977") -> DataFrame:
    """Messages `m<id>` to three destinations; `due`: milliseconds after noon, an expression of `id`.

    The same ones whenever they are asked for, but not in the order of their ids.
    """
    return messages(spark.range(start, start + count, 1, parts).selectExpr("id", "'' AS padding"), due)


def rows_through(spark: SparkSession, count: int, parts: int, padding: int, mapper: Mapper) -> DataFrame:
    """The same, whose tasks first run `mapper` in Python workers of their own; bodies end in `padding` more bytes."""
    ids = spark.sparkContext.parallelize(range(count), parts)
    padded = ids.map(lambda number: (number, "x" * padding)).mapPartitions(mapper)
    return messages(spark.createDataFrame(padded, "id long, padding string"))


def messages(ids: DataFrame, due: str = "id * 977") -> DataFrame:
    """Of the columns `id` and `padding`."""
    noon = int(NOON.timestamp() * 1000)
    return ids.selectExpr(
        "concat('m', id) AS message_id",
        "element_at(array('billing', 'shipping', '/queues/mail'), cast(id % 3 AS int) + 1) AS destination",
        f"timestamp_millis({noon} + {due}) AS due_time",
        "cast(concat(repeat('é', cast(id % 7 AS int)), id, padding) AS binary) AS body",
    )


def load(frame: DataFrame, url: str, **options: Any) -> None:
    """Write `frame` into the endpoint at `url`; `options` come last."""
    given = {"store": url, "endpoint": ENDPOINT, **options}
    frame.write.format("delaystore").options(**given).mode("append").save()


@contextmanager
def refused(kind: type[DelaystoreError], *words: str) -> Iterator[None]:
    """The block fails with that error of ours, dug out of what Spark made of it; its one line holds these words."""
    with pytest.raises(Exception) as raised:  # Spark's own kinds of it are many
        yield
    found = plain_error(raised.value)
    assert found is not None, f"no error of ours in: {raised.value}"
    line = str(found)
    assert type(found) is kind, f"{type(found).__name__}: {line}"
    assert "\n" not in line
    for word in words:
        assert word in line, line


def waiting(url: str) -> list[str]:
    """The message_ids that wait, sorted."""
    ids = [row[0] for row in query(url, f"SELECT message_id FROM {TABLE}")]
    return sorted(name.decode() if isinstance(name, bytes) else name for name in ids)


def count(url: str) -> int:
    """How many messages wait; 0 if there is no table yet."""
    return int(query(url, f"SELECT count(*) FROM {TABLE}")[0][0]) if TABLE in all_tables(url) else 0


def staging_tables(url: str) -> set[str]:
    """The stagings of loads among them."""
    return {name for name in all_tables(url) if "_load_" in name and name != f"{TABLE}_load_changes"}


def staged_rows(url: str) -> int:
    """How many rows stagings hold, those of failed attempts included."""
    return sum(query(url, f'SELECT count(*) FROM "{name}"')[0][0] for name in staging_tables(url))


def checksum_here(frame: DataFrame) -> tuple[int, int]:
    """Count, and sum of digests of (id, destination, due_time, body), by Spark."""
    digest = f"cast(conv({DIGEST.format(OF_SPARK)}, 16, 10) AS decimal(38, 0))"
    found = frame.selectExpr("count(*)", f"sum({digest})").first()
    assert found is not None
    return int(found[0]), int(found[1])


def checksum_there(url: str, table: str = TABLE) -> tuple[int, int]:
    """The same, by PostgreSQL."""
    digest = f"(('x' || lpad({DIGEST.format(OF_POSTGRESQL)}, 16, '0'))::bit(64)::bigint)::numeric"
    found = query(url, f"SELECT count(*), sum({digest}) FROM {table}")[0]
    return int(found[0]), int(found[1])
