"""Messages of SQL queues that a consumer claims, inspects or takes."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection, Row, delete, or_, select, update
from typing_extensions import override

from delaystore.calls import Call
from delaystore.errors import TransportError
from delaystore.message import DelayedMessage
from delaystore.stores.sql.codec import decode_mapping
from delaystore.stores.sql.engine import Connections
from delaystore.text import UNDECODED
from delaystore.transports.abc import OpenQueue, Outcome, OutcomeKind, ReceivedMessage, TakenMessage
from delaystore.transports.shared import PortionSizes
from delaystore.transports.sql_queue._tables import Insertion, QueueTables, transport_errors, writing


def received(row: Row[Any]) -> ReceivedMessage:
    """The message in `row`."""
    return ReceivedMessage(
        message_id=row.message_id, body=row.body, headers=_decoded(row.headers), properties=_decoded(row.properties)
    )


def _decoded(text: str | None) -> Mapping[str, Any]:
    """The headers or properties in `text`; the text itself, if another program wrote it and it cannot be decoded."""
    try:
        return decode_mapping(text)
    except ValueError:
        return {UNDECODED: text}


_UNANSWERED: Final = 60.0
"""Seconds that a database has to move a batch, beyond the caller's."""


class OpenTable(OpenQueue):
    """Rows are taken in the order of `seq`, each once, and moved or removed in one transaction."""

    def __init__(self, connections: Connections, tables: QueueTables, queue: str) -> None:
        self._connections = connections
        self._tables = tables
        self._queue = queue
        self._table = tables.table(queue)
        self._portions = PortionSizes()
        self._after = 0

    @override
    def take(self, limit: int) -> Sequence[TakenMessage]:
        taken = self.claim(self._portions.next(limit))
        self._portions.seen(len(one.message.body) for one in taken)
        return taken

    def claim(self, limit: int) -> Sequence[TakenMessage]:
        """As `take`, in one portion, however large the bodies are."""
        with transport_errors(self._queue):
            rows = self._next_rows(limit)
        if rows:
            self._after = rows[-1].seq
        return [TakenMessage(message=received(row), tag=row.seq) for row in rows]

    @override
    def remove(self, taken: Sequence[TakenMessage]) -> None:
        with transport_errors(self._queue), self._writing() as connection:
            self._delete(connection, taken)

    @override
    def move(
        self, taken: Sequence[TakenMessage], messages: Sequence[DelayedMessage], timeout: float
    ) -> Sequence[Outcome]:
        with (
            transport_errors(self._queue),
            Call("moving between queues", timeout + _UNANSWERED),
            self._writing() as connection,
        ):
            outcomes = Insertion(connection, self._tables, messages).run()
            pairs = zip(taken, outcomes, strict=True)
            self._delete(connection, [one for one, outcome in pairs if outcome.kind is OutcomeKind.DELIVERED])
        return outcomes

    @abstractmethod
    def consume(self, taken: Sequence[TakenMessage]) -> None:
        """Remove all that was taken, except rows that another reader has by now, and end."""

    @abstractmethod
    def give_back(self) -> None:
        """Let others have messages that were taken and not removed."""

    @abstractmethod
    def _next_rows(self, limit: int) -> Sequence[Row[Any]]:
        """The next unclaimed rows behind `_after`, which are this caller's from now on."""

    @abstractmethod
    def _writing(self) -> Any:
        """A block with a connection, whose transaction is committed at its end, and rolled back if it raises."""

    @abstractmethod
    def _owned(self, connection: Connection, numbers: Sequence[int]) -> int:
        """How many of these rows are there and this caller's, and stay so until the transaction ends."""

    def _delete(self, connection: Connection, taken: Sequence[TakenMessage]) -> None:
        if not taken:
            return
        numbers = [one.tag for one in taken]
        if self._owned(connection, numbers) < len(numbers):
            raise TransportError(
                f"another reader of the queue {self._queue!r} has taken some of its messages meanwhile; nothing of "
                "this batch was changed: run it again"
            )
        self._tables.dialect.delete_locked(connection, self._table, "seq", numbers)


class LockedTable(OpenTable):
    """Rows locked in a transaction. It ends with each removal, which also unlocks messages that were taken before
    and kept.
    """

    def __init__(self, connections: Connections, tables: QueueTables, queue: str) -> None:
        super().__init__(connections, tables, queue)
        self._connection: Connection | None = None

    @override
    def consume(self, taken: Sequence[TakenMessage]) -> None:
        with transport_errors(self._queue), self._opened() as connection:
            if taken:
                numbers = [one.tag for one in taken]
                self._tables.dialect.delete_locked(connection, self._table, "seq", numbers)
            connection.commit()
        self._connection = None

    @override
    def give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @override
    def _next_rows(self, limit: int) -> Sequence[Row[Any]]:
        seq = self._table.c.seq
        query = select(self._table).where(seq > self._after).order_by(seq).limit(limit)
        return self._opened().execute(query.with_for_update(skip_locked=True)).all()

    @override
    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        connection, dialect = self._opened(), self._tables.dialect
        try:
            dialect.watch_commit(connection)
            yield connection
            connection.commit()
        except BaseException:
            self.give_back()
            raise
        dialect.check_commit(connection)

    @override
    def _owned(self, connection: Connection, numbers: Sequence[int]) -> int:
        seq = self._table.c.seq
        return len(connection.execute(select(seq).where(seq.in_(numbers)).with_for_update()).all())

    def _opened(self) -> Connection:
        if self._connection is None:
            self._connection = self._connections.connect()
        return self._connection


class LeasedTable(OpenTable):
    """Rows marked in short transactions, for databases without row locks; writers are not locked out meanwhile.

    Others may have rows whose lease has ended, which is noticed when they are removed.
    """

    def __init__(self, connections: Connections, tables: QueueTables, queue: str, lease: timedelta) -> None:
        super().__init__(connections, tables, queue)
        self._lease = lease
        self._reader = str(uuid4())
        self._marked = False

    @override
    def consume(self, taken: Sequence[TakenMessage]) -> None:
        if taken:
            ours = self._table.c.seq.between(taken[0].tag, taken[-1].tag) & (self._table.c.claimed_by == self._reader)
            with transport_errors(self._queue), writing(self._connections) as connection:
                connection.execute(delete(self._table).where(ours))

    @override
    def give_back(self) -> None:
        if self._marked:
            with transport_errors(self._queue), writing(self._connections) as connection:
                unclaimed = {"claimed_by": None, "claimed_until": None}
                ours = self._table.c.claimed_by == self._reader
                connection.execute(update(self._table).where(ours).values(unclaimed))

    @override
    def _next_rows(self, limit: int) -> Sequence[Row[Any]]:
        seq, until = self._table.c.seq, self._table.c.claimed_until
        now = datetime.now(UTC)
        oldest = select(seq).where(seq > self._after, or_(until.is_(None), until <= now)).order_by(seq).limit(limit)
        # Asked first without the write lock, so that waiting readers do not delay writers.
        with self._connections.connect() as connection:
            if connection.execute(oldest.limit(1)).first() is None:
                return []
        marks = {"claimed_by": self._reader, "claimed_until": now + self._lease}
        statement = update(self._table).where(seq.in_(oldest)).values(marks).returning(self._table)
        with writing(self._connections) as connection:
            rows = sorted(connection.execute(statement).all(), key=lambda row: row.seq)
        self._marked |= bool(rows)
        return rows

    @override
    def _writing(self) -> Any:
        return writing(self._connections)

    @override
    def _owned(self, connection: Connection, numbers: Sequence[int]) -> int:
        ours = (self._table.c.seq.in_(numbers)) & (self._table.c.claimed_by == self._reader)
        return len(connection.execute(select(self._table.c.seq).where(ours)).all())
