"""The SQL store on an event loop: the same store, whose statements are executed in greenlets."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL
from sqlalchemy.util import greenlet_spawn

from delaystore.calls import CUT_AFTER
from delaystore.clock import Clock
from delaystore.errors import ConfigurationError
from delaystore.settings import TransactionMode
from delaystore.stores.sql.engine import blocking_url, create_async_store_engine, dispose, transactional
from delaystore.stores.sql.store import SqlDelayedMessageStore
from delaystore.stores.sql.urls import url_label

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


class AsyncSqlDelayedMessageStore:
    """Messages in a table of PostgreSQL, MariaDB, MySQL or SQLite, for an AsyncDelayedDelivery.

    Belongs to one event loop.

    Args:
        database: A SQLAlchemy URL, as in `postgresql+asyncpg://...`, or your AsyncEngine (which closing leaves open).
        schema: The table's schema; None: the connection's own.
        table: The table's name; None: `<endpoint>_delayed`.
        lease: How long a claim outlives a crashed dispatcher on SQLite, as in SqlDelayedMessageStore.
        dispatching: The database for the dispatcher's thread, a URL with a driver that is not for asyncio, or a store;
            None: made from `database`.
        clock: For tests, which set it; None: the database's clock.

    Raises:
        ConfigurationError: The URL, schema, table or lease cannot work, or `database` is something else.
        MissingDependencyError: The database's driver is not installed.

    Example:
        ```python
        store = AsyncSqlDelayedMessageStore("postgresql+asyncpg://user:password@db/app")
        async with AsyncDelayedDelivery("sales", store) as delivery:
            await delivery.send("billing", b"{}", delay=3600)
        ```

    """

    def __init__(
        self,
        database: "str | URL | AsyncEngine",
        *,
        schema: str | None = None,
        table: str | None = None,
        lease: timedelta = timedelta(seconds=60),
        dispatching: str | URL | SqlDelayedMessageStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._owns_engine = isinstance(database, str | URL)
        if not isinstance(database, str | URL) and not hasattr(database, "sync_engine"):
            raise ConfigurationError(
                f"AsyncSqlDelayedMessageStore takes a URL or an AsyncEngine, not {type(database).__name__}; "
                "make one by sqlalchemy.ext.asyncio.create_async_engine"
            )
        engine: AsyncEngine = create_async_store_engine(database) if isinstance(database, str | URL) else database
        self.engine: AsyncEngine = transactional(engine) if self._owns_engine else engine
        """For your transactions, too."""
        self._names: dict[str, Any] = {"schema": schema, "table": table, "lease": lease, "clock": clock}
        self._dispatching = dispatching
        self.bridged = SqlDelayedMessageStore.in_greenlets(
            engine.sync_engine, owns_engine=self._owns_engine, **self._names
        )
        """The store whose calls are made in greenlets only, as `delaystore.processes` says."""

    def __repr__(self) -> str:
        return f"AsyncSqlDelayedMessageStore({url_label(self.engine.url)})"

    def for_dispatching(self, endpoint: str) -> SqlDelayedMessageStore:
        """The store for the dispatcher's thread, which must be closed.

        Args:
            endpoint: The name of the application that the messages belong to.

        Returns:
            The store of `dispatching`, or one that is made from its URL or from `database`.

        Raises:
            ConfigurationError: The store of `dispatching` has another table, whose messages no dispatcher would
                forward.
            MissingDependencyError: Its driver is not installed.

        """
        if not isinstance(self._dispatching, SqlDelayedMessageStore):
            url = blocking_url(self.engine.url) if self._dispatching is None else self._dispatching
            return SqlDelayedMessageStore(url, **self._names)
        ours, theirs = (_table_of(store, endpoint) for store in (self.bridged, self._dispatching))
        if ours != theirs:
            raise ConfigurationError(
                f"the store of dispatching= has the table {theirs!r}, and this one {ours!r}, so that nothing would be "
                "forwarded; give both the same table and clock"
            )
        return self._dispatching

    async def close(self) -> None:
        """Close the connections, unless the AsyncEngine is yours; a server that says nothing is left within seconds."""
        if not self._owns_engine:
            return
        pool: Any = self.engine.sync_engine.pool
        with suppress(TimeoutError):
            async with asyncio.timeout(CUT_AFTER):  # some drivers wait for the server's part in closing, one by one
                await asyncio.gather(*(greenlet_spawn(pool.dispose) for _ in range(pool.checkedin())))
        await greenlet_spawn(dispose, self.engine.sync_engine)


def _table_of(store: SqlDelayedMessageStore, endpoint: str) -> str:
    store.initialize(endpoint, TransactionMode.NONE)
    return store.table.name
