"""What a failed insert means: for its transaction, and for its messages."""

from typing import Final

from sqlalchemy import Connection, exc

from delaystore.transports.sql_queue.connections import in_transaction

_SQLSTATE_CLASSES: Final = frozenset({"08", "40", "53", "55", "57", "58"})
"""Connections, serialization, resources, locks, operators, the system (PostgreSQL manual, appendix A)."""
_READ_ONLY: Final = "25006"
_MYSQL_NUMBERS: Final = frozenset(
    {
        *(1021, 1040, 1041, 1053, 1114, 1135, 1203),  # no space, no memory, no connections, shutting down
        *(1317, 1927, 1969, 3024, 3572),  # killed, out of time
        *(1290, 1792, 1836, 2006, 2013, 2014, 2055),  # read-only, connections lost
    }
)
"""PyMySQL raises OperationalError for nearly all, and most have one SQLSTATE in common: the numbers must tell."""

_MYSQL_LOCK_TIMEOUT: Final = 1205
_MYSQL_DEADLOCK: Final = 1213


def ends_transaction(error: exc.DBAPIError, connection: Connection) -> bool:
    """Whether `error` may have undone the whole transaction on `connection`, and not its statement alone.

    MySQL and MariaDB do so after a deadlock, and with innodb_rollback_on_timeout after waiting too long for a lock;
    SQLite where the disk is full or fails, or memory runs out (sqlite.org/lang_transaction.html).
    """
    if error.connection_invalidated or _mysql_number(error) in (_MYSQL_LOCK_TIMEOUT, _MYSQL_DEADLOCK):
        return True
    return connection.dialect.name == "sqlite" and not in_transaction(connection)


def is_outage(error: exc.DBAPIError) -> bool:
    """Whether `error` says that the database is unwell, and nothing about the rows."""
    number = _mysql_number(error)
    if number:
        return number in _MYSQL_NUMBERS
    sqlstate = getattr(error.orig, "sqlstate", None)
    if isinstance(sqlstate, str):
        return sqlstate[:2] in _SQLSTATE_CLASSES or sqlstate == _READ_ONLY
    return isinstance(error, exc.OperationalError | exc.InterfaceError)


def _mysql_number(error: exc.DBAPIError) -> int:
    """The server's or driver's number; 0 where there is none."""
    number = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return number if isinstance(number, int) else 0
