"""Traffic, counted as it arrives, and the space that a store takes."""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from benchmarks.bench import Bench
from tests.faults.consumer import Consumer

RAMP = 2  # seconds at either end, in which not all of what is due has been sent


class Arrivals(Consumer):
    """Counts what arrives, by the second; a message each would fill the memory within the hour."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(url, queue)
        self.count = 0
        self._by_second: Counter[int] = Counter()

    @override
    def _take(self, channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        self.count += 1
        self._by_second[int(time.time())] += 1
        channel.basic_ack(method.delivery_tag)

    def first_and_last(self, seconds: int) -> tuple[float, float]:
        """Messages a second in the first and in the last `seconds` of full traffic. Call it once this has ended."""
        first, last = min(self._by_second) + RAMP, max(self._by_second) - RAMP - seconds
        return self._rate(first, seconds), self._rate(last, seconds)

    def _rate(self, begin: int, seconds: int) -> float:
        return sum(self._by_second[second] for second in range(begin, begin + seconds)) / seconds


@dataclass(frozen=True)
class Space:
    """What the tables of a store take: rows (dead ones included), bytes of the tables, and of their indexes."""

    rows: int
    table_bytes: int
    index_bytes: int


_STORE_TABLES = """
    WITH RECURSIVE tables AS (
        SELECT %s::regclass::oid AS oid
        UNION ALL SELECT inhrelid FROM pg_inherits JOIN tables ON inhparent = tables.oid
    )
"""


def vacuum(bench: Bench) -> None:
    """Do what autovacuum does when its turn comes."""
    for name in tables_of(bench):
        bench.database.execute(f"VACUUM (ANALYZE) {name}")


def rebuild_indexes(bench: Bench) -> None:
    """Do what docs/reference/postgresql.md tells operators to do about indexes that have grown too much."""
    for name in tables_of(bench):
        bench.database.execute(f"REINDEX TABLE CONCURRENTLY {name}")


def tables_of(bench: Bench) -> list[str]:
    """The quoted names of a store's tables."""
    found = bench.database.execute(f"{_STORE_TABLES} SELECT oid::regclass::text FROM tables", (bench.table,))
    return [name for (name,) in found]


def space_of(bench: Bench) -> Space:
    """The space as PostgreSQL's statistics have it, right behind a vacuum."""
    query = f"""{_STORE_TABLES}
        SELECT sum(n_live_tup + n_dead_tup), sum(pg_table_size(oid)), sum(pg_indexes_size(oid))
        FROM tables JOIN pg_stat_user_tables ON relid = oid
    """
    rows, table_bytes, index_bytes = bench.database.execute(query, (bench.table,)).fetchall()[0]
    return Space(int(rows), int(table_bytes), int(index_bytes))
