"""Connections and transactions of the queue's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import Connection, Engine, exc

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
from delaystore.transports.sql_queue.lock_waits import lock_wait


@contextmanager
def writing(engine: Engine, longest_wait: float | None = None) -> Iterator[Connection]:
    """A transaction that will write, committed at the block's end.

    `longest_wait`: seconds its statements may each wait for a lock; None: as the connection has it.
    """
    with (
        engine.connect() as connection,
        lock_wait(connection, longest_wait),
        connection.get_transaction() or connection.begin(),
    ):
        begin_writing(connection)
        yield connection


def begin_writing(connection: Connection) -> None:
    """Make sure that a transaction has begun: SQLite's driver begins one only at the first write.

    That is too late for a savepoint before it, whose release would then commit.
    """
    if connection.dialect.name == "sqlite" and not in_transaction(connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


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


def in_transaction(connection: Connection) -> bool:
    """Whether SQLite itself is in a transaction, whatever SQLAlchemy thinks."""
    return bool(cast(Any, connection.connection.dbapi_connection).in_transaction)
