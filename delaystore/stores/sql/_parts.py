"""What the connections of one store share."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from delaystore.errors import DuplicateMessageError, MessageBeingStoredError
from delaystore.message import DelayedMessage
from delaystore.sql.dialects import Claiming, StoreDialect
from delaystore.sql.faults import Fault
from delaystore.stores.sql._claims import CandidateLocks, Claims, Leases, RowLocks
from delaystore.stores.sql._clock import DatabaseClock
from delaystore.stores.sql._keyed import Keyed
from delaystore.stores.sql._scan import DueScan
from delaystore.stores.sql._statements import Statements
from delaystore.stores.sql.rows import to_row


@dataclass(frozen=True, slots=True)
class StoreParts:
    """What the connections of one store share."""

    dialect: StoreDialect
    statements: Statements
    scan: DueScan
    clock: DatabaseClock
    channel: str
    lease: timedelta
    keyed: Keyed

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

    def insert(self, connection: Connection, message: DelayedMessage, wake: str | None = None) -> None:
        """Insert a row, and wake dispatchers with the payload `wake`, in one statement where the database can.

        Raises DuplicateMessageError where its message_id waits already, MessageBeingStoredError where it may in a
        moment, and what the driver raises.
        """
        row, sql = to_row(message), self.statements
        if wake is not None and sql.insert_and_notify is not None:
            values = {f"new_{name}": value for name, value in row.items()} | {"channel": self.channel, "payload": wake}
            inserted = connection.execute(sql.insert_and_notify, values).first() is not None
        else:
            try:
                inserted = connection.execute(sql.insert, row).rowcount > 0
            except IntegrityError as error:
                if self.dialect.fault(error) is not Fault.DUPLICATE:
                    raise
                inserted = False
        if not inserted:
            if self.dialect.has_shelves and not connection.execute(sql.waits, {"id": message.message_id}).first():
                raise MessageBeingStoredError(message.message_id)  # or it was, until a moment ago
            raise DuplicateMessageError([message.message_id])
