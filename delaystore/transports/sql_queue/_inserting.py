"""Putting messages into queue tables, with an outcome for each."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, NestedTransaction, exc, insert

from delaystore.address import queue_of
from delaystore.errors import ConfigurationError, InvalidMessageError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.sql.codec import encode_mapping
from delaystore.sql.errors import translate
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind
from delaystore.transports.sql_queue._tables import QueueTables

Row = Mapping[str, Any]


class Insertion:
    """One batch on its way into queue tables, within a transaction that the caller ends.

    Each queue's rows are inserted behind a savepoint, so that a failing queue harms neither the others nor the
    transaction. But some failures undo the whole transaction; then `run` raises.
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

    def _by_queue(self) -> dict[str, dict[int, Row]]:
        queues: dict[str, dict[int, Row]] = {}
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

    def _insert(self, queue: str, rows: Mapping[int, Row]) -> None:
        savepoint = self._connection.begin_nested()
        try:
            self._connection.execute(insert(self._tables.table(queue)).inline(), list(rows.values()))
        except exc.DBAPIError as error:
            self._undo(savepoint, error)
            self._failed(queue, rows, error)
        else:
            savepoint.commit()

    def _undo(self, savepoint: NestedTransaction, error: exc.DBAPIError) -> None:
        """Undo what `error` interrupted; raises `error` where more than that was undone, or may have been."""
        if self._tables.dialect.has_ended_transaction(error, self._connection):
            raise error
        try:
            savepoint.rollback()
        except exc.DBAPIError:  # the savepoint is gone, and so is its transaction; the first error says why
            raise error from None

    def _failed(self, queue: str, rows: Mapping[int, Row], error: exc.DBAPIError) -> None:
        """Tell apart a dropped table, a bad message among many, and an outage of the database."""
        self._tables.forget(queue)
        if not self._tables.exists(self._connection, queue):
            self._settle(rows, _unroutable(queue))
        elif self._tables.dialect.is_outage(error):
            self._settle(rows, Outcome(OutcomeKind.UNSETTLED, str(translate(error))))
        elif len(rows) == 1:
            self._settle(rows, Outcome(OutcomeKind.REFUSED, str(translate(error))))
        else:
            for number, row in rows.items():
                self._insert(queue, {number: row})

    def _settle(self, rows: Mapping[int, Row], outcome: Outcome) -> None:
        for number in rows:
            self._outcomes[number] = outcome


def _row(message: DelayedMessage, now: datetime) -> Row:
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
