"""What the nouns of this package need of a store that is bound to a transaction."""

from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Connection, CursorResult, Executable

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
