"""Whose fault it is that an insert failed: the database's, or the message's."""

from typing import Final

from sqlalchemy import exc

_SQLSTATE_CLASSES: Final = frozenset({"08", "40", "53", "55", "57", "58"})
"""Connections, serialization, resources, locks, operators, the system (PostgreSQL manual, appendix A)."""
_READ_ONLY: Final = "25006"
_MYSQL_NUMBERS: Final = frozenset(
    {
        *(1021, 1040, 1041, 1053, 1114, 1135, 1203),  # no space, no memory, no connections, shutting down
        *(1205, 1213, 1317, 1927, 1969, 3024, 3572),  # lock timeouts, deadlocks, killed, out of time
        *(1290, 1792, 1836, 2006, 2013, 2014, 2055),  # read-only, connections lost
    }
)
"""PyMySQL raises OperationalError for nearly all, and most have one SQLSTATE in common: the numbers must tell."""


def is_outage(error: exc.DBAPIError) -> bool:
    """Whether `error` says that the database is unwell, and nothing about the rows."""
    number = error.orig.args[0] if error.orig is not None and error.orig.args else None
    if isinstance(number, int) and number:
        return number in _MYSQL_NUMBERS
    sqlstate = getattr(error.orig, "sqlstate", None)
    if isinstance(sqlstate, str):
        return sqlstate[:2] in _SQLSTATE_CLASSES or sqlstate == _READ_ONLY
    return isinstance(error, exc.OperationalError | exc.InterfaceError)
