"""What a driver's error means."""

from enum import Enum, auto

from sqlalchemy.exc import DBAPIError

Code = int | str
"""An error as its database numbers it: MySQL's number, PostgreSQL's SQLSTATE."""


class Fault(Enum):
    """The kinds of errors that callers act on."""

    LOGIN = auto()
    """The database refuses the user or the password."""
    NO_DATABASE = auto()
    """The server has no database of that name."""
    UNREACHABLE = auto()
    """No server answers there: no such host, or nothing listens."""
    NO_FILE = auto()
    """The database's file cannot be opened or made."""
    PERMISSION = auto()
    """The user may not do this."""
    MISSING = auto()
    """There is no such table or column, or no unique index that a statement goes by."""
    NO_SCHEMA = auto()
    """There is no such schema, or no name of one."""
    ROW_SECURITY = auto()
    """PostgreSQL would hide rows from the user."""
    DUPLICATE = auto()
    """A unique key exists already, or is there twice."""
    LOCKED = auto()
    """A lock could not be taken at once, or in time."""
    CANCELLED = auto()
    """The database ended the statement: a time limit that is set there, or somebody's request."""
    CONFLICT = auto()
    """A deadlock or a failed serialization: the same may succeed now."""
    READ_ONLY = auto()
    """The server takes no writes: a standby, or a primary that has become one."""
    TOO_LARGE = auto()
    """A row takes more bytes than the database takes at once."""
    POOLED = auto()
    """A statement prepared in another session: a pooler between shares sessions."""
    SETTING = auto()
    """A setting of the server, or of a session that is not ours, forbids the statement."""


def code_of(error: DBAPIError) -> Code | None:
    """PostgreSQL's SQLSTATE, or MySQL's number; None where the driver gives neither."""
    original = error.orig
    number = original.args[0] if original is not None and original.args else None
    if isinstance(number, int):
        return number
    if "password authentication failed" in str(original):
        return "28P01"  # psycopg gives no SQLSTATE for a failed connection
    sqlstate: str | None = getattr(original, "sqlstate", None)
    return sqlstate
