"""A transport whose queues are tables."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Engine, exc, func, select
from sqlalchemy.schema import CreateTable, DropTable
from typing_extensions import override

from delaystore.calls import Call
from delaystore.errors import (
    ConfigurationError,
    StoreError,
    TransportError,
    TransportSetupError,
    UnsupportedMessageError,
)
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.bound import BoundSqlStore
from delaystore.stores.sql.dialects import Claiming, store_dialect_of
from delaystore.stores.sql.engine import Connections, connections_of, create_store_engine, dispose, same_database
from delaystore.stores.sql.errors import translate
from delaystore.stores.sql.urls import check_identifier, url_label
from delaystore.text import named_queue, queue_of
from delaystore.transports.abc import OpenQueue, Outcome, OutcomeKind, ReceivedMessage, TakenMessage, Transport
from delaystore.transports.sql_queue._receiving import LeasedTable, LockedTable, OpenTable
from delaystore.transports.sql_queue._tables import Insertion, QueueTables, transport_errors, writing

LEASE: Final = timedelta(seconds=60)
"""How long a SQLite reader may take before another reader gets the same messages."""
UNANSWERED: Final = 30.0
"""Seconds that a database has for a batch beyond the waits for locks: a frozen one keeps the connection forever."""
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.05
_CREATE_ATTEMPTS: Final = 5


class SqlQueueTransport(Transport):
    """Forwards a message to destination `billing` into the table `billing_queue`.

    Where transport and store share a database, they can share a transaction: exactly once. Names of queues differ as
    names of tables do: on SQLite `Billing` and `billing` are one queue.

    Args:
        url_or_engine: A SQLAlchemy URL, or your Engine, which `close` leaves alone.
        schema: Where the tables are; None: the connection's default.

    Raises:
        ConfigurationError: The URL or schema cannot work.
        MissingDependencyError: The database's driver is not installed.

    Example:
        ```python
        store = SqlDelayedMessageStore("sqlite:///app.db")
        transport = SqlQueueTransport(store.engine)
        settings = DelayedDeliverySettings(transaction_mode=TransactionMode.TRANSACTION_SCOPE)  # exactly once
        delivery = DelayedDelivery("sales", store, transport, settings)
        ```

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
            return [Outcome(OutcomeKind.UNCONFIRMED, _reason(error))] * len(messages)

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
                    # PostgreSQL: another program creates it at this very moment
                    if attempt == _CREATE_ATTEMPTS:
                        raise
                else:
                    return

    def delete(self, queue: str) -> None:
        """Drop the table of a queue, and every message in it; nothing happens if there is none.

        Args:
            queue: The queue's name.

        Raises:
            TransportSetupError: The name cannot be a table's, or the user may not drop it.
            TransportUnavailableError: The database is not available.
            TransportError: The database fails otherwise.

        """
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
        opened = self._opened(named_queue(queue))
        try:
            taken = _wait_for_messages(opened, limit, time.monotonic() + timeout)
            yield [one.message for one in taken]
        except BaseException:
            opened.give_back()
            raise
        opened.consume(taken)

    @override
    @contextmanager
    def open_queue(self, queue: str) -> Iterator[OpenQueue]:
        """Take messages of `queue`, the oldest first; see `Transport.open_queue`.

        A message that moves to another queue of this database leaves in the transaction that stores it there. Once a
        message is removed, others may get messages that were taken before, except on SQLite, where all are kept for
        a minute. Raises TransportSetupError for a queue that does not exist, TransportUnavailableError.
        """
        name = named_queue(queue)
        if not self._exists(name):
            raise TransportSetupError(
                f"there is no queue {queue!r}; create it with `delaystore setup --queue {queue}` or declare()"
            )
        opened = self._opened(name)
        try:
            yield opened
        finally:
            opened.give_back()

    @override
    def depth(self, queue: str) -> int | None:
        """How many messages are in `queue`, counted; None: there is no such queue."""
        name = named_queue(queue)
        if not self._exists(name):
            return None
        with transport_errors(queue), self._connections.connect() as connection:
            return connection.execute(select(func.count()).select_from(self._tables.table(name))).scalar_one()

    @override
    def reaches(self, destination: str) -> bool | None:
        """Whether there is a table for `destination`."""
        try:
            queue = queue_of(destination)
            self._tables.table(queue)
        except (ConfigurationError, UnsupportedMessageError):
            return False
        return self._exists(queue)

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
            dispose(self._engine)

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

    def _exists(self, queue: str) -> bool:
        """Whether the database has the table of `queue` now."""
        self._tables.forget(queue)
        with transport_errors(queue), self._connections.connect() as connection:
            return self._tables.exists(connection, queue)

    def _opened(self, queue: str) -> OpenTable:
        if self._dialect.claiming is Claiming.LEASES:
            return LeasedTable(self._connections, self._tables, queue, LEASE)
        return LockedTable(self._connections, self._tables, queue)


def _wait_for_messages(opened: OpenTable, limit: int, deadline: float) -> Sequence[TakenMessage]:
    pause = _FIRST_PAUSE
    while True:
        taken = opened.claim(limit)
        left = deadline - time.monotonic()
        if taken or left <= 0:
            return taken
        opened.give_back()  # a transaction that stays open may not see messages that come later
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)


def open_sql_queue(url: str) -> SqlQueueTransport:
    """Open the SQL queues of a database; the entry point of its schemes.

    Args:
        url: A SQLAlchemy URL.

    Returns:
        The transport. It connects when it is first used.

    Raises:
        ConfigurationError: The URL cannot work.
        MissingDependencyError: The database's driver is not installed.

    """
    return SqlQueueTransport(url)


def _reason(error: Exception) -> str:
    return str(translate(error) if isinstance(error, exc.DBAPIError) else error)
