"""Claims as leases, for a database without row locks."""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable

from delaystore.message import DelayedMessage
from delaystore.stores.sql.bound import BoundSqlStore, StoreParts, place_of
from delaystore.stores.sql.rows import to_message
from delaystore.stores.sql.scan import Mark


class LeaseBoundStore(BoundSqlStore):
    """Claims are written and committed at once, so that no writer waits while a batch is being forwarded.

    Where the transaction has already written, the claim stays part of it. The owner calls `release` after the end.
    """

    def __init__(self, parts: StoreParts, connection: Connection, token: str | None = None) -> None:
        super().__init__(parts, connection)
        self._token = token or self.new_token()
        self._written = False

    @staticmethod
    def new_token() -> str:
        """The name of a claimer."""
        return str(uuid.uuid4())

    def next(self) -> datetime | None:
        """The first without a lease, or the first end of a lease, if that is sooner."""
        lease_end = self._first(self._sql.first_lease_end, {})
        first = super().next()
        return min(first, lease_end) if first and lease_end else first or lease_end

    def release(self) -> None:
        """End the leases of what was fetched and not settled, in a transaction of its own."""
        if self._unsettled:
            self._execute(self._sql.release, {"token": self._token, "ids": list(self._unsettled)})
            self.connection.commit()

    def _claim(self, at: datetime, limit: int, mark: Mark | None) -> Sequence[DelayedMessage]:
        now = self.now()
        values = {"at": at, "limit": limit, "now": now, "token": self._token, "lease_end": now + self._parts.lease}
        written_before = self._written
        if mark is None:
            rows = self._execute(self._sql.claim_due, values).all()
        else:
            rows = self._execute(
                self._sql.claim_due_behind, values | place_of(mark.next_attempt, mark.message_id)
            ).all()
        if not written_before:
            self.connection.commit()
            self._written = False
        messages = [to_message(row) for row in rows]
        messages.sort(key=lambda message: (message.attention_time, message.message_id))
        return messages

    def _claimer(self) -> dict[str, Any]:
        return {"token": self._token}

    def _execute(self, statement: Executable, parameters: Any) -> CursorResult[Any]:
        self._written = self._written or not statement.is_select
        return super()._execute(statement, parameters)
