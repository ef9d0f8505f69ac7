"""What the connections of one store share."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Executable
from sqlalchemy.exc import DBAPIError, IntegrityError

from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError, MessageBeingStoredError
from delaystore.message import DelayedMessage
from delaystore.sql.dialects import Claiming, StoreDialect
from delaystore.sql.faults import Fault
from delaystore.stores.sql._claims import CandidateLocks, Claims, Leases, RowLocks
from delaystore.stores.sql._clock import StoreClock
from delaystore.stores.sql._keyed import Keyed
from delaystore.stores.sql._scan import DueScan
from delaystore.stores.sql._statements import Statements
from delaystore.stores.sql.beside import OperatingTables
from delaystore.stores.sql.rows import to_row
from delaystore.stores.sql.setup import KnownVersion


@dataclass(frozen=True, slots=True)
class StoreParts:
    """What the connections of one store share."""

    dialect: StoreDialect
    statements: Statements
    scan: DueScan
    clock: StoreClock
    channel: str
    lease: timedelta
    keyed: Keyed
    beside: OperatingTables
    version: KnownVersion

    def claims(self, connection: Callable[[], Connection], *, committing: bool, token: str | None = None) -> Claims:
        """The claims on what `connection` returns; `token` names the claimer where claims outlive their transaction."""
        if self.dialect.claiming is Claiming.ROW_LOCKS:
            return RowLocks(connection, self.statements, self.dialect, committing=committing)
        if self.dialect.claiming is Claiming.CANDIDATE_LOCKS:
            return CandidateLocks(connection, self.statements)
        return Leases(
            connection,
            self.statements,
            token=token or Leases.new_token(),
            lease=self.lease,
            now=lambda: self.clock.now_on(connection()),
            committing=committing,
        )

    def insert(self, connection: Connection, message: DelayedMessage) -> None:
        """Insert a row.

        Raises DuplicateMessageError where its message_id is there, claimed or not, MessageBeingStoredError where it may
        be in a moment, and what the driver raises.
        """
        self._check(connection, message, lambda row: self._inserted(connection, self.statements.insert, row))

    def insert_alone(self, connection: Connection, message: DelayedMessage, wake: str | None) -> None:
        """`insert` in a transaction of one statement, which also wakes dispatchers with the payload `wake`."""
        single, notifying = self.statements.insert_alone, self.statements.insert_and_notify
        if wake is None or notifying is None:
            self._check(connection, message, lambda row: self._inserted(connection, single, row))
        else:
            self._check(connection, message, lambda row: self._notified(connection, notifying, row, wake))

    def insert_enlisted(self, connection: Connection, message: DelayedMessage, wake: str) -> None:
        """`insert` in somebody else's transaction, whose commit wakes dispatchers where the database can."""
        notifying = self.statements.insert_enlisted
        if notifying is None:
            self.insert(connection, message)
        else:
            self._check(connection, message, lambda row: self._notified(connection, notifying, row, wake))

    def _check(
        self, connection: Connection, message: DelayedMessage, inserts: Callable[[dict[str, Any]], bool]
    ) -> None:
        """Raise the error that says why `inserts` has not inserted the row of `message`."""
        there = {"id": message.message_id}
        for _ in range(2):  # the row that refuses the first may have gone by now
            try:
                if inserts(to_row(message)):
                    return
            except DBAPIError as error:
                if self.dialect.is_file or not self.dialect.is_message_id_locked(error):
                    raise
                if self.dialect.claiming is Claiming.CANDIDATE_LOCKS and self._is_there(connection, there):
                    raise MessageBeingDispatchedError([message.message_id]) from None  # the insert has waited for it
                raise MessageBeingStoredError(message.message_id) from None
            if not self.dialect.has_shelves or self._is_there(connection, there):
                raise DuplicateMessageError([message.message_id])
        raise MessageBeingStoredError(message.message_id)

    def _is_there(self, connection: Connection, there: dict[str, str]) -> bool:
        return connection.execute(self.statements.waits, there).first() is not None

    def _inserted(self, connection: Connection, statement: Executable, row: dict[str, Any]) -> bool:
        try:
            with self.dialect.inserting(connection):
                return connection.execute(statement, row).rowcount > 0
        except IntegrityError as error:
            if self.dialect.fault(error) is not Fault.DUPLICATE:
                raise
            return False

    def _notified(self, connection: Connection, statement: Executable, row: dict[str, Any], wake: str) -> bool:
        values = {f"new_{name}": value for name, value in row.items()} | {"channel": self.channel, "payload": wake}
        return connection.execute(statement, values).scalar() is not None
