"""Tables of SQL queues, insertion into them, and the connections that are used."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, NestedTransaction, Table, exc, insert, inspect
from sqlalchemy.sql import quoted_name

from delaystore.errors import (
    ConfigurationError,
    InvalidMessageError,
    StoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
    TransportError,
    TransportSetupError,
    TransportUnavailableError,
    UnsupportedMessageError,
)
from delaystore.message import MAX_MESSAGE_ID_BYTES, DelayedMessage
from delaystore.stores.sql.codec import Body, ExactText, Json, UtcDateTime, encode_mapping
from delaystore.stores.sql.dialects import Claiming, StoreDialect, store_dialect_of
from delaystore.stores.sql.engine import Connections
from delaystore.stores.sql.errors import translate, translated_errors
from delaystore.stores.sql.urls import check_identifier
from delaystore.text import queue_of
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind

SUFFIX: Final = "_queue"
"""The end of a table's name, behind its queue's name."""


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
        **dialect.table_options,
    )


class QueueTables:
    """The queue tables of one database; remembers which of them exist."""

    def __init__(self, schema: str | None, dialect: StoreDialect) -> None:
        self.schema = schema
        self.dialect = dialect
        self._seen: set[str] = set()
        self.forget: Final = self._seen.discard
        """Has the database asked again: the table of a queue may have been dropped."""

    def table(self, queue: str) -> Table:
        """The table of `queue`, whether it exists or not; raises ConfigurationError for an impossible name."""
        return queue_table(queue, self.schema, self.dialect)

    def exists(self, connection: Connection, queue: str) -> bool:
        """Whether `queue` has its table; asks the database only until it has."""
        if queue not in self._seen and inspect(connection).has_table(self.table(queue).name, self.schema):
            self._seen.add(queue)
        return queue in self._seen


QueueRow = Mapping[str, Any]


class Insertion:
    """One batch on its way into queue tables, within a transaction that the caller ends.

    Each queue's rows are inserted behind a savepoint, so that a failing queue does not harm the others and
    the transaction. But some failures undo the whole transaction; then `run` raises.
    """

    def __init__(self, connection: Connection, tables: QueueTables, messages: Sequence[DelayedMessage]) -> None:
        self._connection = connection
        self._tables = tables
        self._messages = messages
        self._outcomes: list[Outcome] = [DELIVERED] * len(messages)

    def run(self) -> Sequence[Outcome]:
        """Insert all, and return one outcome for each message.

        Raises SQLAlchemyError if the transaction may be lost; the caller rolls it back.
        """
        for queue, rows in self._by_queue().items():
            if self._tables.exists(self._connection, queue):
                self._insert(queue, rows)
            else:
                self._settle(rows, _unroutable(queue))
        return self._outcomes

    def _by_queue(self) -> dict[str, dict[int, QueueRow]]:
        queues: dict[str, dict[int, QueueRow]] = {}
        now = datetime.now(UTC)
        for number, message in enumerate(self._messages):
            try:
                queue = queue_of(message.destination)
                self._tables.table(queue)
                row = _row(message, now)
            except (ConfigurationError, UnsupportedMessageError) as error:
                self._outcomes[number] = Outcome(OutcomeKind.UNROUTABLE, str(error))
            except InvalidMessageError as error:
                self._outcomes[number] = Outcome(OutcomeKind.REFUSED, str(error))
            else:
                queues.setdefault(queue, {})[number] = row
        return queues

    def _insert(self, queue: str, rows: Mapping[int, QueueRow]) -> None:
        savepoint = self._connection.begin_nested()
        try:
            self._connection.execute(insert(self._tables.table(queue)).inline(), list(rows.values()))
        except exc.DBAPIError as error:
            self._undo(savepoint, error)
            self._failed(queue, rows, error)
        else:
            savepoint.commit()

    def _undo(self, savepoint: NestedTransaction, error: exc.DBAPIError) -> None:
        """Undo the statement that `error` interrupted; raises `error` where more than that was undone, or may have
        been.
        """
        if self._tables.dialect.has_ended_transaction(error, self._connection):
            raise error
        try:
            savepoint.rollback()
        except exc.DBAPIError:  # the savepoint is gone, and so is its transaction; the first error says why
            raise error from None

    def _failed(self, queue: str, rows: Mapping[int, QueueRow], error: exc.DBAPIError) -> None:
        """Tell apart a dropped table, a bad message among many, and an outage of the database."""
        self._tables.forget(queue)
        if not self._tables.exists(self._connection, queue):
            self._settle(rows, _unroutable(queue))
        elif self._tables.dialect.is_outage(error):
            self._settle(rows, Outcome(OutcomeKind.UNCONFIRMED, str(translate(error))))
        elif len(rows) == 1:
            self._settle(rows, Outcome(OutcomeKind.REFUSED, str(translate(error))))
        else:
            for number, row in rows.items():
                self._insert(queue, {number: row})

    def _settle(self, rows: Mapping[int, QueueRow], outcome: Outcome) -> None:
        for number in rows:
            self._outcomes[number] = outcome


def _row(message: DelayedMessage, now: datetime) -> QueueRow:
    return {
        "message_id": message.message_id,
        "due_time": message.due_time,
        "headers": encode_mapping(message.headers),
        "properties": encode_mapping(message.properties),
        "body": message.body,
        "enqueued_at": now,
    }


def _unroutable(queue: str) -> Outcome:
    return Outcome(
        OutcomeKind.UNROUTABLE, f"there is no queue {queue!r}; create it with `delaystore setup --queue {queue}`"
    )


@contextmanager
def writing(connections: Connections, longest_wait: float | None = None) -> Iterator[Connection]:
    """A transaction that will write, committed at the block's end.

    `longest_wait`: seconds its statements may each wait for a lock; None: as the connection has it.
    Raises DurabilityUnknownError for a commit that may not be on the synchronous standby.
    """
    with connections.connect() as connection:
        dialect = store_dialect_of(connection)
        dialect.watch_commit(connection)
        with (
            nullcontext() if longest_wait is None else dialect.lock_wait(connection, longest_wait),
            connection.get_transaction() or connection.begin(),
        ):
            dialect.begin_writing(connection)
            yield connection
        dialect.check_commit(connection)


@contextmanager
def transport_errors(queue: str) -> Iterator[None]:
    """Raise TransportUnavailableError, TransportSetupError or TransportError for a driver's error."""
    try:
        with translated_errors():
            yield
    except exc.IntegrityError as error:
        raise TransportError(str(translate(error))) from None
    except StoreUnavailableError as error:
        raise TransportUnavailableError(str(error)) from None
    except StoreSetupError:
        raise TransportSetupError(
            f"there is no queue {queue!r}, or its table is another program's; "
            f"create it with `delaystore setup --queue {queue}` or declare()"
        ) from None
    except StorePermissionError as error:
        raise TransportSetupError(str(error)) from None
    except StoreError as error:
        raise TransportError(str(error)) from None
