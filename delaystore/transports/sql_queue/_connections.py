"""Connections and transactions of the queue's own."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from sqlalchemy import Connection, exc

from delaystore.errors import (
    StoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
    TransportError,
    TransportSetupError,
    TransportUnavailableError,
)
from delaystore.sql.dialects import store_dialect_of
from delaystore.sql.engine import Connections
from delaystore.sql.errors import translate, translated_errors


@contextmanager
def writing(connections: Connections, longest_wait: float | None = None) -> Iterator[Connection]:
    """A transaction that will write, committed at the block's end.

    `longest_wait`: seconds its statements may each wait for a lock; None: as the connection has it.
    Raises DurabilityUnknownError for a commit that may not be on the synchronous standby.
    """
    with connections.connect() as connection:
        dialect = store_dialect_of(connection)
        dialect.watch_commit(connection)
        with (
            nullcontext() if longest_wait is None else dialect.lock_wait(connection, longest_wait),
            connection.get_transaction() or connection.begin(),
        ):
            dialect.begin_writing(connection)
            yield connection
        dialect.check_commit(connection)


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
