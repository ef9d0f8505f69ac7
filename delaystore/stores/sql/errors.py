"""Driver errors as errors of our own tree: one line, without SQL, parameters or passwords."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from sqlalchemy import exc

from delaystore.errors import (
    ConfigurationError,
    MissingDependencyError,
    StoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
    TooLargeForStoreError,
)
from delaystore.registry import EXTRAS, installing
from delaystore.stores.sql.dialects import fault_of, is_outage
from delaystore.stores.sql.faults import DatabaseHost, Fault

_MEANINGS: Final[Mapping[Fault | None, tuple[type[StoreError], str]]] = {
    Fault.LOGIN: (StoreUnavailableError, "the database refuses the login: {}; check user and password"),
    Fault.NO_DATABASE: (
        StoreUnavailableError,
        "the database cannot be used now: {}; create it with CREATE DATABASE, or correct its name in the URL",
    ),
    Fault.UNREACHABLE: (
        StoreUnavailableError,
        "the database cannot be used now: {}; check host and port in the URL, and that the server runs there",
    ),
    Fault.NO_FILE: (
        StoreUnavailableError,
        "the database cannot be used now: {}; check the path in the URL, and who may write the file and its folder",
    ),
    Fault.PERMISSION: (
        StorePermissionError,
        "the database does not allow it: {}; grant the right, use another user, or correct the names in the URL",
    ),
    Fault.MISSING: (
        StoreSetupError,
        "the store's tables are missing or out of date ({}); check the names of endpoint, schema and table, then run "
        "`delaystore setup`",
    ),
    Fault.NO_SCHEMA: (
        StoreSetupError,
        "there is no schema for the store's tables ({}); create it with CREATE SCHEMA, or name one with --schema or "
        "schema=, or in the search_path of this role",
    ),
    Fault.ROW_SECURITY: (
        StorePermissionError,
        "row level security would hide rows from this role ({}); for a table of the store, switch it off with ALTER "
        "TABLE ... DISABLE ROW LEVEL SECURITY, or exempt the role with ALTER ROLE ... BYPASSRLS; for a table of "
        "your own, execute SET LOCAL row_security = on before your statements",
    ),
    Fault.CANCELLED: (
        StoreUnavailableError,
        "the database ended a statement ({}); if it took longer than a limit set there for this user or database "
        "(statement_timeout, transaction_timeout, max_statement_time), raise the limit",
    ),
    Fault.READ_ONLY: (
        StoreUnavailableError,
        "the database is read-only, as a standby is ({}); name all hosts in the URL, as in HOST1:PORT,HOST2:PORT, or "
        "for PostgreSQL behind one address add target_session_attrs=read-write; if the primary itself has "
        "default_transaction_read_only on for this role or database, switch it off",
    ),
    Fault.LOCKED: (
        StoreUnavailableError,
        "another transaction has locked what is needed ({}); try again once it has ended, or if it is your own, enlist "
        "this call in it",
    ),
    Fault.CONFLICT: (
        StoreUnavailableError,
        "another transaction has changed what this one needs ({}); if it is your own, roll it back, begin it "
        "again, and repeat all of it",
    ),
    Fault.TOO_LARGE: (
        TooLargeForStoreError,
        "a message is too large for the database: {}; raise the limit there, or send less",
    ),
    Fault.POOLED: (
        StoreError,
        "a pooler shares the database's sessions, so that prepared statements fail ({}); write "
        "?prepare_threshold=none in the URL, make an Engine of your own with "
        "connect_args={{'prepare_threshold': None}}, or set max_prepared_statements in pgbouncer 1.21 or newer",
    ),
    Fault.SETTING: (
        StoreError,
        "a setting of the server or of this session forbids the statement: {}; set binlog_format = ROW or MIXED, "
        "sql_safe_updates = OFF, and sql_mode to its default",
    ),
}
"""What errors say, around the driver's own words."""
_CLASS: Final = re.compile(r"^<class '[^']+'>: ")
"""How SQLAlchemy 2.0 begins what asyncpg has raised."""
_DATE_STYLE: Final = "with DateStyle"
"""In what psycopg raises for a time that is not written as ISO."""
_ATTEMPT: Final = re.compile(
    r"^- host: '?(?P<host>.*?)'?, port: '?(?P<port>.*?)'?, hostaddr: (?:None|'.*?'): "
    r"(?:connection failed: connection to server .*? failed: )?(?P<reason>.*)$",
    re.MULTILINE,
)
"""A line of what psycopg raises where it has tried several hosts; the first line tells of the last one alone."""


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise StoreUnavailableError, StorePermissionError, StoreSetupError or StoreError for a driver's error.

    ConfigurationError: a connection that is not ours writes times as psycopg cannot read them.
    """
    try:
        yield
    except exc.DBAPIError as error:
        raise translate(error) from None
    except NotImplementedError as error:
        if _DATE_STYLE not in str(error):
            raise
        raise ConfigurationError(
            "psycopg reads times of PostgreSQL only where they are written as ISO; give your connections "
            "datestyle = 'ISO', as in ALTER ROLE ... SET datestyle = 'ISO'"
        ) from None
    except exc.TimeoutError:
        raise StoreUnavailableError("no free database connection within the pool's timeout; enlarge the pool") from None
    except exc.UnsupportedCompilationError:
        raise
    except exc.ResourceClosedError:
        raise StoreError("the transaction or connection has ended; begin another, and enlist again") from None
    except exc.InvalidRequestError as error:
        if not isinstance(error, exc.PendingRollbackError) and "inactive" not in str(error):
            raise
        raise StoreUnavailableError("the database connection was lost in the middle of a transaction") from None


@contextmanager
def configuration_errors() -> Iterator[None]:
    """Raise ConfigurationError for a database URL that cannot work, MissingDependencyError for a missing driver."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "")
        advice = installing(extra) if extra else "install it, or leave it out, as in postgresql:// or mysql://"
        raise MissingDependencyError(f"the database driver {error.name} is not installed; {advice}") from None
    except ImportError as error:  # psycopg without libpq, which its extra brings
        raise MissingDependencyError(
            f"the database driver cannot be loaded: {str(error).partition(chr(10))[0]}; {installing('postgresql')}"
        ) from None
    except exc.ArgumentError as error:
        reason = str(error) if "parse" not in str(error) else "it is not of the form scheme://user:password@host/name"
        raise ConfigurationError(f"the database URL cannot be used: {reason}") from None
    except (ValueError, TypeError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            "the database URL cannot be used; check that its port is a number, and that its options exist"
        ) from None


def translate(error: exc.DBAPIError) -> StoreError:
    """The StoreError with the meaning of `error`, and the remedy."""
    text = _text(error.orig)
    if (meaning := _MEANINGS.get(fault_of(error))) is not None:
        kind, said = meaning
        return kind(said.format(text))
    if error.connection_invalidated or is_outage(error):
        return StoreUnavailableError(f"the database cannot be used now: {text}")
    return StoreError(f"the database refused the statement: {text}")


def unreachable(error: OSError) -> StoreError:
    """The StoreError for an error of a driver's socket, which SQLAlchemy does not take for the database's error."""
    kind, said = _MEANINGS[Fault.UNREACHABLE]
    return kind(said.format(str(error) or type(error).__name__))


def _text(original: BaseException | None) -> str:
    if original is None:
        return "unknown error"
    if original.args and isinstance(original.args[0], int):
        return " ".join(str(part) for part in original.args[1:2]) or type(original).__name__
    attempts = [
        f"{DatabaseHost(each['host'], None)}:{each['port']}: {each['reason']}"
        for each in _ATTEMPT.finditer(str(original))
    ]
    if attempts:
        return "; ".join(dict.fromkeys(attempts))  # a name may have several addresses
    text = _CLASS.sub("", str(original))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(original).__name__
