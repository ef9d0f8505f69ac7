"""The servers that ours and peer run on, in turn."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

import psycopg

from benchmarks.bench import BODY_BYTES, Bench
from benchmarks.filling import fill
from tests.servers import PostgreSQL, RabbitMQ


class Arena:
    """A private PostgreSQL and a private RabbitMQ, both with their default settings."""

    def __init__(self) -> None:
        self.postgresql = PostgreSQL()
        self.rabbitmq = RabbitMQ()
        self._stack = ExitStack()
        self._filled: dict[tuple[int, int], str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.postgresql)
            stack.enter_context(self.rabbitmq)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextmanager
    def bench(self) -> Iterator[Bench]:
        """A store in a database of its own, with a queue of its own."""
        url = self.postgresql.create_database()
        try:
            with self._bench_at(url) as bench:
                yield bench
        finally:
            self.postgresql.drop_database(url)

    @contextmanager
    def filled_bench(self, waiting: int, body_bytes: int = BODY_BYTES) -> Iterator[Bench]:
        """The store of `filled`, with a queue of its own. What is sent to the queue, and still waits, is deleted."""
        with self._bench_at(self.filled(waiting, body_bytes)) as bench:
            yield bench
            bench.forget_sent()

    def filled(self, waiting: int, body_bytes: int = BODY_BYTES) -> str:
        """The URL of a database in whose store so many messages wait: made once, shared, and connected to by nobody.

        Whoever changes it leaves as many waiting, and nothing due.
        """
        key = waiting, body_bytes
        if key not in self._filled:
            url = self.postgresql.create_database()
            with self._bench_at(url) as bench:
                fill(bench.database, bench.table, waiting, body_bytes)
                bench.settle()
            self._filled[key] = url
        return self._filled[key]

    def drop_filled(self) -> None:
        """Give the disk back that `filled` took."""
        while self._filled:
            self.postgresql.drop_database(self._filled.popitem()[1])

    def _bench_at(self, url: str) -> Bench:
        return Bench(url, self.rabbitmq.url, self.checkpoint)

    def checkpoint(self) -> None:
        """Have PostgreSQL write now what it would else write in the middle of a round."""
        with psycopg.connect(dsn_of(self.postgresql.admin_url), autocommit=True) as connection:
            connection.execute("CHECKPOINT")

    def settings(self) -> Mapping[str, str]:
        """The server settings that durability and speed hang on, as the servers say them."""
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size")
        with psycopg.connect(dsn_of(self.postgresql.url)) as connection:
            found = {name: str(connection.execute(f"SHOW {name}").fetchall()[0][0]) for name in names}
        return found | {"rabbitmq": self.rabbitmq.ctl("version").strip(), "cores": str(os.cpu_count())}


def dsn_of(url: str) -> str:
    """The libpq form of a SQLAlchemy URL."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)
