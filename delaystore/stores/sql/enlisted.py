"""A store in somebody else's transaction."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, SessionTransaction

from delaystore.errors import ConfigurationError
from delaystore.stores.sql.bound import BoundSqlStore, StoreParts

CommitAction = Callable[[], None]
_WAITING: Final = "delaystore_waiting"
"""Where a session keeps what waits for its transaction's end; one listener serves all, for the session's life."""


class EnlistedSqlStore(BoundSqlStore):
    """The store's interface in the caller's transaction: what it writes is there when, and only when, that commits.

    When that will be is not known, so the first write has the commit wake every dispatcher, whatever the due time.
    """

    def __init__(self, parts: StoreParts, target: Connection | Session, on_commit: CommitAction | None = None) -> None:
        connection = connection_of(target)
        super().__init__(parts, connection, parts.claims(connection, committing=False))
        self._target = target
        self._on_commit = on_commit
        self._announced = False

    def _wants_attention(self, at: datetime) -> None:
        super()._wants_attention(at)
        if self._announced:
            return
        self._announced = True
        self._notify("")
        if isinstance(self._target, Session):
            # a Connection has no event after its commit; there, dispatchers hear the notification or poll
            _at_the_end_of(self._target, self._ended)

    def _ended(self) -> None:
        self.rolled_back()  # perhaps it was; then what was fetched must be found again
        self.after_end()
        if self._on_commit is not None:
            self._on_commit()


def _at_the_end_of(session: Session, action: CommitAction) -> None:
    """Call `action` once, after the session's outermost transaction."""
    if _WAITING not in session.info:
        session.info[_WAITING] = []
        event.listen(session, "after_transaction_end", _call_waiting)
    session.info[_WAITING].append(action)


def _call_waiting(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        waiting, session.info[_WAITING] = session.info[_WAITING], []
        for action in waiting:
            action()


def connection_of(target: Connection | Session) -> Connection:
    """The Connection that a Connection or Session is in; ConfigurationError for anything else."""
    if isinstance(target, Connection):
        return target
    if isinstance(target, Session):
        return target.connection()
    raise ConfigurationError(
        f"enlist takes a SQLAlchemy Connection or Session, not {type(target).__name__}; "
        "for an AsyncSession call it inside run_sync"
    )
