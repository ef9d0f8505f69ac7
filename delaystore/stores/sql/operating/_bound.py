"""What the nouns of this package need of a store that is bound to a transaction."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, CursorResult, Executable, Table, insert, update

from delaystore.sql.errors import translated_errors
from delaystore.stores.sql._parts import StoreParts


class Bound(Protocol):
    """A transaction, and what belongs to it; see BoundSqlStore."""

    @property
    def connection(self) -> Connection: ...

    @property
    def parts(self) -> StoreParts: ...

    def now(self) -> datetime: ...

    def stored(self, earliest: datetime) -> None: ...


class Noun:
    """Statements about one noun, in the transaction of `bound`."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._dialect = bound.parts.dialect
        self._sql = bound.parts.statements
        self._tables = bound.parts.beside

    def _execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        with translated_errors():
            return self._bound.connection.execute(statement, parameters)

    def begin_writing(self) -> None:
        """Begin as the writer where there is but one, so that what is read stays so; elsewhere rows are locked."""
        with translated_errors():
            self._dialect.begin_writing(self._bound.connection)

    def upsert(self, table: Table, known: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Change the row that has the `known` values, or add it. Nobody else writes it."""
        if not self._execute(update(table).where(*are(table, known)).values(**values)).rowcount:
            self._execute(insert(table), {**known, **values})


def are(table: Table, known: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    """That a row has these values."""
    return [table.c[name] == value for name, value in known.items()]
