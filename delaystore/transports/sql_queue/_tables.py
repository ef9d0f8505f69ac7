"""The tables that hold the queues."""

from functools import lru_cache
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table, inspect
from sqlalchemy.sql import quoted_name

from delaystore.errors import ConfigurationError
from delaystore.message import MAX_MESSAGE_ID_BYTES
from delaystore.sql.dialects import Claiming, StoreDialect
from delaystore.sql.names import check_identifier
from delaystore.sql.types import INNODB, Body, ExactText, Json, UtcDateTime

SUFFIX: Final = "_queue"
"""What follows a queue's name in its table's name."""


def table_name(queue: str, dialect: StoreDialect) -> str:
    """The name of `queue`'s table; raises ConfigurationError for one the database cannot have."""
    if not queue:
        raise ConfigurationError("the queue name is empty; give the queue a name")
    name = check_identifier(queue + SUFFIX, dialect, f"the queue name {queue!r} with its suffix,")
    prefix = dialect.reserved_prefix
    if prefix and name.lower().startswith(prefix):
        raise ConfigurationError(f"the queue name {queue!r} starts with {prefix}, which the database keeps for itself")
    return name


@lru_cache(maxsize=1024)
def queue_table(queue: str, schema: str | None, dialect: StoreDialect) -> Table:
    """The table of `queue`: in the order of `seq`, the oldest message first.

    Without row locks (SQLite) a row also says who is reading it, and until when.
    """
    name = table_name(queue, dialect)
    leases: list[Column[Any]] = []
    if dialect.claiming is Claiming.LEASES:
        leases = [Column("claimed_by", ExactText(36)), Column("claimed_until", UtcDateTime)]
    return Table(
        quoted_name(name, quote=True),
        MetaData(),
        Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("message_id", ExactText(MAX_MESSAGE_ID_BYTES), nullable=False),
        Column("due_time", UtcDateTime, nullable=False),
        Column("headers", Json),
        Column("properties", Json),
        Column("body", Body, nullable=False),
        Column("enqueued_at", UtcDateTime, nullable=False),
        *leases,
        schema=None if schema is None else quoted_name(schema, quote=True),
        **INNODB,
    )


class QueueTables:
    """The queue tables of one database; remembers which of them exist."""

    def __init__(self, schema: str | None, dialect: StoreDialect) -> None:
        self.schema = schema
        self.dialect = dialect
        self._seen: set[str] = set()

    def table(self, queue: str) -> Table:
        """The table of `queue`, whether it exists or not; raises ConfigurationError for an impossible name."""
        return queue_table(queue, self.schema, self.dialect)

    def exists(self, connection: Connection, queue: str) -> bool:
        """Whether `queue` has its table; asks the database only until it has."""
        if queue not in self._seen and inspect(connection).has_table(self.table(queue).name, self.schema):
            self._seen.add(queue)
        return queue in self._seen

    def forget(self, queue: str) -> None:
        """Ask the database again: the table of `queue` may have been dropped."""
        self._seen.discard(queue)
