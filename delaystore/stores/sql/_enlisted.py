"""A store in somebody else's transaction."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, SessionTransaction
from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage
from delaystore.sql.errors import translated_errors
from delaystore.stores.abc import REJECT
from delaystore.stores.sql._listener import payload_of
from delaystore.stores.sql._parts import StoreParts
from delaystore.stores.sql.bound import BoundSqlStore

EndAction = Callable[[], None]
_WAITING: Final = "delaystore_waiting"
"""The key in Session.info of the actions to call at the transaction's end; one listener per session calls them all."""


class EnlistedSqlStore(BoundSqlStore):
    """The store's interface in the caller's transaction: what it writes takes effect only if that commits.

    The time of the commit is unknown, so each write has the commit wake every dispatcher, whatever the due time; the
    database sends equal notifications only once. Each statement asks the Session for its connection: only then does the
    Session begin its savepoints, and a savepoint that is rolled back undoes what was sent within it.
    """

    def __init__(self, parts: StoreParts, target: Connection | Session, on_end: EndAction | None = None) -> None:
        claims = parts.claims(lambda: self.connection, committing=False)
        super().__init__(parts, connection_of(target), claims)
        self._target = target
        self._on_end = on_end
        self._awaits_end = False

    @property
    @override
    def connection(self) -> Connection:
        """The Session's connection of this moment."""
        return connection_of(self._target)

    @override
    def store(self, message: DelayedMessage) -> None:
        """Insert and notify in one statement; a duplicate leaves the caller's transaction alive."""
        if message.key is not None:
            self.store_keyed(message, REJECT)
            return
        self.written()
        with translated_errors():
            self._parts.insert(self.connection, message, payload_of(None))
        self._await_end(message.next_attempt)

    @override
    def _waits_until(self, at: datetime) -> None:
        self._notify(payload_of(None))
        self._await_end(at)

    def _await_end(self, at: datetime) -> None:
        super()._waits_until(at)
        if not self._awaits_end and isinstance(self._target, Session):
            # a Connection has no event after its commit; there, dispatchers hear the notification or poll
            self._awaits_end = True
            _at_the_end_of(self._target, self._ended)

    def _ended(self) -> None:
        self._awaits_end = False
        self.rolled_back()  # perhaps: then what was fetched must be found again
        self.after_end()
        if self._on_end is not None:
            self._on_end()


def _at_the_end_of(session: Session, action: EndAction) -> None:
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
    """The Connection that a Connection or Session is in; raises ConfigurationError for anything else."""
    if isinstance(target, Connection):
        return target
    if isinstance(target, Session):
        return target.connection()
    raise ConfigurationError(
        f"enlist takes a SQLAlchemy Connection or Session, not {type(target).__name__}; "
        "for an AsyncSession call it inside run_sync"
    )
