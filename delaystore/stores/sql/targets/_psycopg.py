"""Connections of psycopg 3."""

from typing import Any, ClassVar

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.rows import TupleRow, tuple_row
from sqlalchemy import URL
from typing_extensions import override

from delaystore.stores.sql.targets.driver import Loan


class PsycopgLoan(Loan):
    """A psycopg.Connection: unless in autocommit mode, its first statement begins a transaction."""

    driver: ClassVar[str] = "psycopg"
    taken: ClassVar[type] = psycopg.Connection

    @property
    @override
    def address(self) -> URL:
        info = self.raw.info
        return URL.create("postgresql", host=info.host, port=info.port, database=info.dbname)

    @property
    @override
    def commits_at_once(self) -> bool:
        is_idle = self.raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        return bool(self.raw.autocommit and is_idle)

    @override
    def cursor(self, *_arguments: Any, **_options: Any) -> Any:
        return _PlainCursor(self.raw)


class _PlainCursor(psycopg.Cursor[TupleRow]):
    """Rows are tuples of psycopg's own types, whatever the connection's row factory and adapters make of them."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._plain = AdaptersMap(psycopg.adapters)
        super().__init__(connection, row_factory=tuple_row)

    @property
    @override
    def adapters(self) -> AdaptersMap:
        return self._plain
