"""Stores that keep a history: one beside a store without, and one that is filled with entries within PostgreSQL."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from psycopg import sql

from benchmarks.arena import Arena
from benchmarks.bench import Bench
from delaystore.stores.history import HistoryFilter

WITH: Final = "with a history"
WITHOUT: Final = "without"
DAY: Final = timedelta(days=1)
DAYS: Final = 30
"""For how long entries are kept."""
DESTINATION: Final = "invoice-mail"


@contextmanager
def with_and_without(arena: Arena) -> Iterator[Mapping[str, Bench]]:
    """An empty store that keeps a history, and one that keeps none, by WITH and WITHOUT."""
    with ExitStack() as stack:
        without, kept = (stack.enter_context(arena.bench()) for _ in range(2))
        kept.store.keep_history(DAYS * DAY)
        yield {WITHOUT: without, WITH: kept}


def check_entries(bench: Bench, count: int) -> None:
    """Count the entries of the history; another number than expected raises RuntimeError."""
    query = sql.SQL("SELECT count(*) FROM {}").format(_table(bench))
    found = bench.database.execute(query).fetchall()[0][0]
    if found != count:
        raise RuntimeError(f"the history has {found} entries, not {count}")


class FilledHistory:
    """Entries of messages that were delivered evenly over the last 30 days: about `count`, for ids as delaystore makes.

    An id is computed from the number of its message, so that it is asked for without a look at its row before.
    """

    def __init__(self, bench: Bench, count: int) -> None:
        self._bench = bench
        self._of_a_day = count // DAYS
        self.count = DAYS * self._of_a_day
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        self._begin = midnight - DAYS * DAY
        bench.store.keep_history(DAYS * DAY)  # the store makes the partitions of today, and of the next days
        for day in range(DAYS):
            self._add_partition(day)
        bench.database.execute(sql.SQL("VACUUM (ANALYZE) {}").format(_table(bench)))
        bench.settle()

    def look_up(self, count: int, *, existing: bool) -> Sequence[float]:
        """Look up different ids, which have an entry or have none; return the seconds of each lookup."""
        seconds = []
        for message_id in self._sample(count, existing=existing):
            began = time.perf_counter()
            found = self._bench.store.history(HistoryFilter(message_id=message_id)).entries
            seconds.append(time.perf_counter() - began)
            if len(found) != existing:
                raise RuntimeError(f"{message_id} has {len(found)} entries, not {existing:d}")
        return seconds

    def bytes_of_an_entry(self) -> tuple[float, float]:
        """Bytes of its row, and of its entries in the indexes, with the free space in their pages."""
        query = sql.SQL(
            "SELECT sum(pg_table_size(inhrelid)), sum(pg_indexes_size(inhrelid)) "
            "FROM pg_inherits WHERE inhparent = {}::regclass"
        ).format(self._bench.table + "_history")
        row, indexes = self._bench.database.execute(query).fetchall()[0]
        return float(row) / self.count, float(indexes) / self.count

    def _add_partition(self, day: int) -> None:
        """Fill a table in the order in which the messages left, then attach it: only then it gets its indexes."""
        begin = self._begin + day * DAY
        numbers = sql.SQL("generate_series({}, {})").format(day * self._of_a_day, (day + 1) * self._of_a_day - 1)
        statements = (
            "CREATE TABLE {name} (LIKE {history} INCLUDING DEFAULTS, "
            "CONSTRAINT of_a_day CHECK (ended_at >= {begin} AND ended_at < {end}))",
            "INSERT INTO {name} (message_id, destination, due_time, ended_at, attempts, ending, body_hash) "
            "SELECT message_id, {destination}, ended - interval '3 ms', ended, 1, 'delivered', "
            "sha256(message_id::bytea) "
            "FROM ({messages} OFFSET 0) AS messages",
            "ALTER TABLE {history} ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({end})",
            "ALTER TABLE {name} DROP CONSTRAINT of_a_day",
        )
        parts = {
            "name": sql.Identifier(f"{self._bench.table}_history_{begin:%Y%m%d%H%M}"),
            "history": _table(self._bench),
            "begin": begin.isoformat(),
            "end": (begin + DAY).isoformat(),
            "destination": DESTINATION,
            "messages": self._messages(numbers, existing=True),
        }
        with self._bench.database.transaction():
            for statement in statements:
                self._bench.database.execute(sql.SQL(statement).format(**parts))

    def _sample(self, count: int, *, existing: bool) -> Sequence[str]:
        numbers = sql.SQL("unnest({}::int[])").format(random.sample(range(self.count), count))
        messages = self._bench.database.execute(self._messages(numbers, existing=existing)).fetchall()
        return [message_id for message_id, _ in messages]

    def _messages(self, numbers: sql.Composable, *, existing: bool) -> sql.Composed:
        """A query for the ids of the messages with these numbers, and for the times when they were delivered.

        They were sent up to an hour before; their ids, UUIDs of version 7, tell when. With OFFSET 0, PostgreSQL
        computes a value once, and not again for each place where it stands.
        """
        query = sql.SQL(
            "SELECT concat_ws('-', left(made, 8), right(made, 4), '7' || left(hash, 3), '8' || substr(hash, 4, 3), "
            "right(hash, 12)) AS message_id, ended "
            "FROM {numbers} AS number, LATERAL (SELECT {begin}::timestamptz + number / {of_a_day} * interval '1 day' "
            "+ number % {of_a_day} * {step}::interval AS ended OFFSET 0) AS times, "
            "LATERAL (SELECT lpad(to_hex(floor(1000 * date_part('epoch', ended))::bigint "
            "- number::bigint * 7919 % 3600000), 12, '0') AS made, "
            "md5(concat({kind}::text, number)) AS hash OFFSET 0) AS parts"
        )
        return query.format(
            numbers=numbers,
            begin=self._begin.isoformat(),
            of_a_day=self._of_a_day,
            step=DAY // self._of_a_day,
            kind="made" if existing else "missing",
        )


def _table(bench: Bench) -> sql.Identifier:
    return sql.Identifier(f"{bench.table}_history")
