"""Connections and transactions of the queue's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import Connection, Engine, exc, text

from delaystore.errors import (
    StoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
    TransportError,
    TransportSetupError,
    TransportUnavailableError,
)
from delaystore.stores.sql.translation import translate, translated_errors


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that will write, committed at the block's end."""
    with engine.begin() as connection:
        begin_writing(connection)
        yield connection


def begin_writing(connection: Connection) -> None:
    """Make sure that a transaction has begun: SQLite's driver begins one only at the first write.

    That is too late for a savepoint before it, whose release would then commit.
    """
    if connection.dialect.name == "sqlite" and not _in_transaction(connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def limit_lock_wait(connection: Connection, seconds: float) -> None:
    """Let no statement of this transaction wait longer for a lock, where the database can say so."""
    if connection.dialect.name == "postgresql":
        milliseconds = f"{max(1, int(seconds * 1000))}ms"
        connection.execute(text("SELECT set_config('lock_timeout', :limit, true)"), {"limit": milliseconds})


@contextmanager
def transport_errors(queue: str) -> Iterator[None]:
    """Raise TransportUnavailableError, TransportSetupError or TransportError for a driver's error."""
    try:
        with translated_errors():
            yield
    except exc.IntegrityError as error:
        raise TransportError(str(translate(error))) from None
    except StoreUnavailableError as error:
        raise TransportUnavailableError(str(error)) from None
    except StoreSetupError:
        raise TransportSetupError(
            f"there is no queue {queue!r}, or its table is another program's; "
            f"create it with `delaystore setup --queue {queue}` or declare()"
        ) from None
    except StorePermissionError as error:
        raise TransportSetupError(str(error)) from None
    except StoreError as error:
        raise TransportError(str(error)) from None


def _in_transaction(connection: Connection) -> bool:
    return bool(cast(Any, connection.connection.dbapi_connection).in_transaction)
