"""The transactions of SQLAlchemy's connections and sessions."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection, event, exc
from typing_extensions import override

from delaystore.errors import ConfigurationError, StoreError
from delaystore.sql.drivers import driver_of
from delaystore.stores.sql.targets.abc import Target
from delaystore.stores.sql.targets.driver import COMMITS_AT_ONCE

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction

_WAITING: Final = "delaystore_waiting"
"""The key in Session.info of the actions to call at the transaction's end; one listener per session calls them all."""


class ConnectionTarget(Target):
    """A Connection's transaction. It has an event before its commit, and none after it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    @override
    def connection(self) -> Connection:
        return _in_transaction(self._connection)

    @property
    @override
    def address(self) -> URL:
        return self._connection.engine.url


class SessionTarget(Target):
    """A Session's transaction.

    Each statement asks the Session for its connection: only then does the Session begin its savepoints, and a savepoint
    that is rolled back undoes what was done within it.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session

    @property
    @override
    def connection(self) -> Connection:
        try:
            return _in_transaction(self._session.connection())
        except exc.PendingRollbackError:
            raise StoreError("the session's transaction has failed; roll it back, and begin another") from None
        except exc.UnboundExecutionError:
            raise ConfigurationError(
                "the session is bound to no single engine; enlist the connection to the store's database, as in "
                "session.connection(bind_arguments={'mapper': Order})"
            ) from None
        except exc.InvalidRequestError as error:
            raise StoreError(f"the session takes no statements: {str(error).partition(chr(10))[0]}") from None

    @property
    @override
    def address(self) -> URL:
        return self.connection.engine.url

    @override
    def when_ended(self, action: Callable[[], None]) -> None:
        """After the outermost transaction, committed or not."""
        info = self._session.info
        if _WAITING not in info:
            info[_WAITING] = []
            event.listen(self._session, "after_transaction_end", _call_waiting)
        if action not in info[_WAITING]:
            info[_WAITING].append(action)


def _in_transaction(connection: Connection) -> Connection:
    """`connection`, unless it is one that commits each statement at once."""
    given = connection.get_execution_options().get("isolation_level")
    if (given or connection.dialect._on_connect_isolation_level) == "AUTOCOMMIT":  # there is no other way to know
        raise ConfigurationError(
            "the connection has isolation_level AUTOCOMMIT, so that each statement would be committed at once; "
            "enlist one that has transactions"
        )
    driver = driver_of(connection)
    if driver.commits_at_once(_own(connection)):
        begun = None if connection.in_transaction() else connection.begin()  # whose listener may begin one
        if driver.commits_at_once(_own(connection)):
            if begun is not None:
                begun.rollback()
            raise ConfigurationError(COMMITS_AT_ONCE)
    return connection


def _own(connection: Connection) -> Any:
    """The driver's own connection."""
    return connection.connection.driver_connection


def _call_waiting(session: "Session", transaction: "SessionTransaction") -> None:
    if transaction.parent is None:
        waiting, session.info[_WAITING] = session.info[_WAITING], []
        for action in waiting:
            action()
