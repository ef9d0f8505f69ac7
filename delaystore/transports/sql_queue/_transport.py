"""A transport whose queues are tables."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Engine, Row, exc
from sqlalchemy.schema import CreateTable, DropTable
from typing_extensions import override

from delaystore.address import named_queue, queue_of
from delaystore.calls import Call
from delaystore.errors import ConfigurationError, StoreError, TransportError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.sql.codec import decode_mapping
from delaystore.sql.connections import connections_of
from delaystore.sql.dialects import Claiming, store_dialect_of
from delaystore.sql.engine import Connections, create_store_engine, same_database
from delaystore.sql.errors import translate
from delaystore.sql.names import check_identifier
from delaystore.sql.urls import url_label
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.bound import BoundSqlStore
from delaystore.transports.abc import Outcome, OutcomeKind, ReceivedMessage, Transport
from delaystore.transports.sql_queue._claims import Claim, LeasedRows, LockedRows
from delaystore.transports.sql_queue._connections import transport_errors, writing
from delaystore.transports.sql_queue._inserting import Insertion
from delaystore.transports.sql_queue._tables import QueueTables

LEASE: Final = timedelta(seconds=60)
"""How long a SQLite reader may take before another reader gets the same messages."""
UNANSWERED: Final = 30.0
"""Seconds that a database has for a batch beyond the waits for locks: a frozen one keeps the connection for ever."""
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.05
_CREATE_ATTEMPTS: Final = 5


class SqlQueueTransport(Transport):
    """Forwards a message to destination `billing` into the table `billing_queue`.

    `url_or_engine`: an SQLAlchemy URL, or an Engine of your own, which `close` leaves alone.
    `schema`: where the tables are; None: the connection's default.

    Where transport and store share a database, they can share a transaction: exactly once. Names of queues differ as
    names of tables do: on SQLite `Billing` and `billing` are one queue.

    Raises ConfigurationError for a URL or schema that cannot work.
    """

    def __init__(self, url_or_engine: str | Engine, *, schema: str | None = None) -> None:
        self._own_engine = not isinstance(url_or_engine, Engine)
        engine = url_or_engine if isinstance(url_or_engine, Engine) else create_store_engine(url_or_engine)
        self._dialect = store_dialect_of(engine)
        if schema is not None:
            check_identifier(schema, self._dialect, "the schema")
        self._engine = engine
        connections_of(engine)  # so that a call knows the connection that it waits for
        self._connections = Connections(engine, None if self._own_engine else self._dialect.transaction_isolation)
        self._tables = QueueTables(schema, self._dialect)

    def __repr__(self) -> str:
        return f"SqlQueueTransport({url_label(self._engine.url)})"

    @override
    def send(
        self, messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float
    ) -> Sequence[Outcome]:
        """Insert `messages`, into the transaction of `transaction` if given, else committed before this returns.

        `timeout` bounds each wait for a lock where the transaction is not shared, and all of it ends UNANSWERED seconds
        later. Raises TransportError where a shared transaction may be lost or half done; the caller must roll it back.
        """
        if isinstance(transaction, BoundSqlStore):
            return self._send_within(transaction, messages)
        try:
            with Call("inserting into queues", timeout + UNANSWERED), writing(self._connections, timeout) as connection:
                return Insertion(connection, self._tables, messages).run()
        except (StoreError, exc.SQLAlchemyError) as error:
            return [Outcome(OutcomeKind.UNSETTLED, _reason(error))] * len(messages)

    @override
    def declare(self, queue: str) -> None:
        """Create the table of `queue` if it does not exist; safe in several processes at once."""
        table = self._table(queue)
        for attempt in range(1, _CREATE_ATTEMPTS + 1):
            with transport_errors(queue):
                try:
                    with writing(self._connections) as connection:
                        connection.execute(CreateTable(table, if_not_exists=True))
                except (exc.IntegrityError, exc.ProgrammingError):
                    # PostgreSQL: somebody else creates it at this very moment
                    if attempt == _CREATE_ATTEMPTS:
                        raise
                else:
                    return

    def delete(self, queue: str) -> None:
        """Drop the table of `queue`, and every message in it; nothing happens if there is none."""
        table = self._table(queue)
        with transport_errors(queue), writing(self._connections) as connection:
            connection.execute(DropTable(table, if_exists=True))
        self._tables.forget(queue)

    @override
    @contextmanager
    def receive(self, queue: str, limit: int = 1, timeout: float = 0) -> Iterator[Sequence[ReceivedMessage]]:
        """Take up to `limit` messages, the oldest first; two readers never get the same one.

        On SQLite a block that takes longer than a minute may lose its messages to another reader.
        Raises TransportSetupError for a queue that does not exist, TransportUnavailableError.
        """
        claim = self._wait_for_rows(queue, limit, time.monotonic() + timeout)
        try:
            yield [_received(row) for row in claim.rows]
        except BaseException:
            with transport_errors(queue):
                claim.give_back()
            raise
        with transport_errors(queue):
            claim.settle()

    @override
    def check(self, message: DelayedMessage) -> None:
        """Refuse a destination that no table can be named after."""
        queue = queue_of(message.destination)
        try:
            self._tables.table(queue)
        except ConfigurationError as error:
            raise UnsupportedMessageError(str(error)) from None

    @override
    def shares_transaction_with(self, store: DelayedMessageStore) -> bool:
        return isinstance(store, SqlDelayedMessageStore) and same_database(store.engine, self._engine)

    @override
    def close(self) -> None:
        if self._own_engine:
            self._engine.dispose()

    def _send_within(self, transaction: BoundSqlStore, messages: Sequence[DelayedMessage]) -> Sequence[Outcome]:
        try:
            transaction.written()
            self._dialect.begin_writing(transaction.connection)
            return Insertion(transaction.connection, self._tables, messages).run()
        except (StoreError, exc.SQLAlchemyError) as error:
            # some rows may be inserted: if a commit kept them, these messages would be sent twice
            raise TransportError(f"the transaction must be rolled back: {_reason(error)}") from None

    def _table(self, queue: str) -> Any:
        return self._tables.table(named_queue(queue))

    def _wait_for_rows(self, queue: str, limit: int, deadline: float) -> Claim:
        pause = _FIRST_PAUSE
        while True:
            with transport_errors(queue):
                claim = self._claim(queue, limit)
                left = deadline - time.monotonic()
                if claim.rows or left <= 0:
                    return claim
                claim.give_back()
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _claim(self, queue: str, limit: int) -> Claim:
        if self._dialect.claiming is Claiming.LEASES:
            return LeasedRows(self._connections, self._table(queue), limit, LEASE)
        return LockedRows(self._connections, self._table(queue), limit)


def open_sql_queue(url: str) -> SqlQueueTransport:
    """The SQL queues in the database at `url`; raises ConfigurationError, MissingDependencyError."""
    return SqlQueueTransport(url)


def _reason(error: Exception) -> str:
    return str(translate(error) if isinstance(error, exc.DBAPIError) else error)


def _received(row: Row[Any]) -> ReceivedMessage:
    return ReceivedMessage(
        message_id=row.message_id, body=row.body, headers=_decoded(row.headers), properties=_decoded(row.properties)
    )


def _decoded(text: str | None) -> Mapping[str, Any]:
    """The headers or properties in `text`; the text itself, if somebody else wrote it and it cannot be decoded."""
    try:
        return decode_mapping(text)
    except ValueError:
        return {"delaystore.raw": text}
