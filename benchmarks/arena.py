"""The servers that ours and peer run on, in turn."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

import psycopg

from benchmarks.bench import Bench
from tests.servers import PostgreSQL, RabbitMQ


class Arena:
    """A private PostgreSQL and a private RabbitMQ, both with their default settings."""

    def __init__(self) -> None:
        self.postgresql = PostgreSQL()
        self.rabbitmq = RabbitMQ()
        self._stack = ExitStack()

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
            with Bench(url, self.rabbitmq.url, self.checkpoint) as bench:
                yield bench
        finally:
            self.postgresql.drop_database(url)

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
