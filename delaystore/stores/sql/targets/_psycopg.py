"""Connections of psycopg 3."""

from functools import cached_property
from typing import Any, ClassVar

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.rows import TupleRow, tuple_row
from sqlalchemy import URL
from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.stores.sql.targets._drivers import LentConnection


class PsycopgLentConnection(LentConnection):
    """A psycopg.Connection."""

    driver: ClassVar[str] = "psycopg"
    taken: ClassVar[type] = psycopg.Connection

    @property
    @override
    def address(self) -> URL:
        info = self.raw.info
        return URL.create("postgresql", host=info.host, port=info.port, database=info.dbname)

    @property
    @override
    def is_closed(self) -> bool:
        return bool(self.raw.closed)

    @override
    def check(self) -> None:
        """In a pipeline statements have no answers yet."""
        super().check()
        if self.raw.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF:
            raise ConfigurationError(
                "the connection is in a pipeline; use the enlisted delivery before or after the pipeline"
            )

    @override
    def cursor(self, *_arguments: Any, **_options: Any) -> Any:
        return _PlainPsycopgCursor(self.raw)


class AsyncPsycopgLentConnection(PsycopgLentConnection):
    """A psycopg.AsyncConnection, as SQLAlchemy wraps one: to be used in greenlets."""

    taken: ClassVar[type] = psycopg.AsyncConnection
    is_async: ClassVar[bool] = True

    @override
    def cursor(self, *_arguments: Any, **_options: Any) -> Any:
        return self._wrapped.cursor()

    @cached_property
    def _wrapped(self) -> Any:
        async def taken() -> _WithPlainCursors:
            return _WithPlainCursors(self.raw)

        return self.driver_module.connect(async_creator_fn=taken)


class _WithPlainCursors:
    """An AsyncConnection whose cursors are plain."""

    def __init__(self, raw: psycopg.AsyncConnection[Any]) -> None:
        self._raw = raw

    def cursor(self) -> "_PlainAsyncCursor":
        return _PlainAsyncCursor(self._raw)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


class _PlainAsyncCursor(psycopg.AsyncCursor[TupleRow]):
    """As _PlainPsycopgCursor."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._plain = AdaptersMap(psycopg.adapters)
        super().__init__(connection, row_factory=tuple_row)

    @property
    @override
    def adapters(self) -> AdaptersMap:
        return self._plain


class _PlainPsycopgCursor(psycopg.Cursor[TupleRow]):
    """Rows are tuples of psycopg's own types, with any row factory and adapters of the connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._plain = AdaptersMap(psycopg.adapters)
        super().__init__(connection, row_factory=tuple_row)

    @property
    @override
    def adapters(self) -> AdaptersMap:
        return self._plain
