"""Column types that mean the same on every database.

The modules of SQLAlchemy for one database load slowly, so each is imported where that database is used.
"""

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import DateTime, Dialect, LargeBinary, String, Text
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType
from typing_extensions import override

_MYSQL = ("mysql", "mariadb")
INNODB: Final[Mapping[str, Any]] = {
    f"{name}_{option}": value
    for option, value in {"engine": "InnoDB", "row_format": "DYNAMIC"}.items()
    for name in _MYSQL
}
"""Options of a table: the engine that has transactions, and its format whose keys are long enough, whatever the
server's defaults are."""


class UtcDateTime(TypeDecorator[datetime]):
    """An instant to the microsecond, the same whatever the session's time zone."""

    impl = DateTime
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """PostgreSQL keeps instants; the others keep UTC without a time zone."""
        if _is_postgresql(dialect):
            return dialect.type_descriptor(DateTime(timezone=True))
        if dialect.name in _MYSQL:
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        if dialect.name == "mssql":
            from sqlalchemy.dialects import mssql

            return dialect.type_descriptor(mssql.DATETIME2(6))  # type: ignore[no-untyped-call]
        return dialect.type_descriptor(DateTime())

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC, aware only for PostgreSQL."""
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value if _is_postgresql(dialect) else value.replace(tzinfo=None)

    @override
    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or not isinstance(value, datetime):
            return value
        return value.astimezone(UTC) if _is_postgresql(dialect) else value.replace(tzinfo=UTC)

    @override
    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """What is no time goes back as it came, to be compared with."""
        write = super().bind_processor(dialect)
        if write is None:
            return None
        return lambda value: write(value) if value is None or isinstance(value, datetime) else value

    @override
    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """What is no time comes as the driver gives it: one such row must not make a search fail.

        Somebody's own connection to SQLite may have a converter that makes a time of it before.
        """
        read = super().result_processor(dialect, coltype)
        if read is None:
            return None

        def read_or_leave(value: Any) -> Any:
            try:
                return read(value)
            except (ValueError, TypeError, OverflowError):
                is_naive = isinstance(value, datetime) and value.tzinfo is None
                return value.replace(tzinfo=UTC) if is_naive else value

        return read_or_leave


class ExactText(TypeDecorator[str]):
    """Text compared byte by byte: case, accents and trailing spaces count, whatever the database's collation."""

    impl = String
    cache_ok = True

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        super().__init__(max_bytes)

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """MySQL's and MariaDB's collations fold or pad, so text is kept as bytes there."""
        if _is_postgresql(dialect):
            return dialect.type_descriptor(Text(collation="C"))
        if dialect.name in _MYSQL:
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.VARBINARY(self.max_bytes))
        if dialect.name == "mssql":
            from sqlalchemy.dialects import mssql

            return dialect.type_descriptor(mssql.NVARCHAR(self.max_bytes, collation="Latin1_General_100_BIN2"))
        return dialect.type_descriptor(Text())

    @override
    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        return value.encode(errors="surrogateescape") if value is not None and dialect.name in _MYSQL else value

    @override
    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Bytes where the database keeps text are no text: SQLite has them where somebody has written them."""
        if dialect.name in _MYSQL and isinstance(value, bytes | bytearray):
            return bytes(value).decode(errors="surrogateescape")
        return value


class Json(TypeDecorator[str]):
    """The text that `codec` writes: ASCII, of any length."""

    impl = Text
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in _MYSQL:
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.LONGTEXT())
        if dialect.name == "mssql":
            from sqlalchemy.dialects import mssql

            return dialect.type_descriptor(mssql.NVARCHAR(None))
        return dialect.type_descriptor(Text())


class JsonList(TypeDecorator[list[str]]):
    """A list as one parameter, where the database has no arrays."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: list[str] | None, dialect: Dialect) -> str | None:
        return json.dumps(value)


class Body(TypeDecorator[bytes]):
    """Bytes of any length; in SQLite also what else somebody has written there."""

    impl = LargeBinary
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in _MYSQL:
            from sqlalchemy.dialects import mysql

            return dialect.type_descriptor(mysql.LONGBLOB())
        return dialect.type_descriptor(LargeBinary())

    @override
    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        return None if dialect.name == "sqlite" else super().result_processor(dialect, coltype)


class TupleId(UserDefinedType[str]):
    """Where a row lies in a table of PostgreSQL's: its page, and its number there."""

    cache_ok = True

    def get_col_spec(self, **_options: object) -> str:
        """PostgreSQL's name of the type."""
        return "TID"


def _is_postgresql(dialect: Dialect) -> bool:
    """Whether it is PostgreSQL, or a relative whose SQLAlchemy dialect derives from PostgreSQL's."""
    module = sys.modules.get("sqlalchemy.dialects.postgresql.base")  # without it, there is no such dialect
    return module is not None and isinstance(dialect, module.PGDialect)
