"""The columns of a message, their types, and its headers and properties as text."""

import json
import math
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import BINARY, Column, ColumnElement, DateTime, Dialect, FromClause, Integer, LargeBinary, String, Text
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType
from typing_extensions import override

from delaystore.errors import InvalidMessageError
from delaystore.message import (
    MAX_ADDRESS_BYTES,
    MAX_HEADER_DEPTH,
    MAX_MESSAGE_ID_BYTES,
    NOTHING,
    Position,
)
from delaystore.text import is_deeper

DEEPEST: Final = 3 * MAX_HEADER_DEPTH
"""Levels of JSON that are read: more than `encode_mapping` makes of the deepest headers, tags included."""
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_AS_THEY_ARE: Final = frozenset({str, int, bool, type(None)})
_UNTAG: Final[Mapping[str, Callable[[Any], Any]]] = {
    "$bytes": lambda text: b64decode(text, validate=True),
    "$datetime": lambda text: _datetime(text),
    "$decimal": Decimal,
    "$float": float,
    "$map": lambda pairs: {name: _untag(value) for name, value in pairs.items()},
}


class NestingError(ValueError):
    """Text is JSON with more than DEEPEST levels."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {DEEPEST} levels")


def encode_mapping(mapping: Mapping[str, Any]) -> str | None:
    """`mapping` as text; None for an empty one. Raises InvalidMessageError for a value without an encoding."""
    if not mapping:
        return None
    try:
        return _ENCODER.encode({name: _tag(value) for name, value in mapping.items()})
    except (TypeError, ValueError) as error:
        raise InvalidMessageError(f"a header cannot be stored: {error}") from None


def decode_mapping(text: str | None) -> Mapping[str, Any]:
    """The inverse of `encode_mapping`; raises ValueError, NestingError, for text it did not write."""
    if text is None:
        return NOTHING
    if type(text) is not str:
        raise ValueError(f"not text, but {type(text).__name__}")
    try:
        mapping = json.loads(text)
    except RecursionError:
        raise NestingError from None
    if type(mapping) is not dict:
        raise ValueError("not a JSON object")
    if text.count("{") + text.count("[") > DEEPEST and is_deeper(mapping, DEEPEST):
        raise NestingError  # Python 3.14 parses far more levels than encoders can follow
    return untagged(mapping) if '"$' in text else mapping


def untagged(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """A JSON object with the values that its tags stand for; raises ValueError for a tag that does not fit."""
    try:
        return {name: _untag(value) for name, value in mapping.items()}
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"a tagged value does not fit its tag: {error}") from None


def _tag(value: Any) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    if isinstance(value, datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, Mapping):
        tagged = {name: _tag(item) for name, item in value.items()}
        return {"$map": tagged} if len(tagged) == 1 and next(iter(tagged)).startswith("$") else tagged
    if isinstance(value, list):
        return [_tag(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no encoding")


def _datetime(text: str) -> datetime:
    """The inverse of `isoformat`; Python's own takes any character for the T."""
    if text[10:11] != "T":
        raise ValueError("a time without a T")
    return datetime.fromisoformat(text)


def _untag(value: Any) -> Any:
    if type(value) is list:
        return [_untag(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        (name, item), *_ = value.items()
        if name.startswith("$"):
            if name not in _UNTAG:
                raise ValueError(f"unknown tag {name}")
            return _UNTAG[name](item)
    return {name: _untag(item) for name, item in value.items()}


_MYSQL = ("mysql", "mariadb")
INNODB: Final[Mapping[str, Any]] = {
    f"{name}_{option}": value
    for option, value in {"engine": "InnoDB", "row_format": "DYNAMIC"}.items()
    for name in _MYSQL
}
"""Options of a table: the engine that has transactions, and its format whose keys are long enough, independent of
the server's defaults."""


class UtcDateTime(TypeDecorator[datetime]):
    """An instant to the microsecond, the same in every session time zone."""

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
    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """Write a time as `process_bind_param` does; the database is decided once, as this runs for each value.

        Any other value is returned unchanged: a search compares with the text that an earlier row had in its place.
        """
        is_aware, write = _is_postgresql(dialect), self.impl_instance.bind_processor(dialect)

        def written(value: Any) -> Any:
            if not isinstance(value, datetime):
                return value
            value = value.astimezone(UTC)
            if not is_aware:
                value = value.replace(tzinfo=None)
            return value if write is None else write(value)

        return written

    @override
    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Read a time in UTC. Any other value is returned as the driver reads it: such a row must not fail a search.

        A caller's own connection to SQLite may have a converter that makes a time of the text before.
        """
        is_aware, read = _is_postgresql(dialect), self.impl_instance.result_processor(dialect, coltype)

        def read_or_leave(value: Any) -> Any:
            if value is None:  # as most latest deliveries
                return None
            try:
                found = value if read is None else read(value)
                if not isinstance(found, datetime):
                    return found
                return found.astimezone(UTC) if is_aware else found.replace(tzinfo=UTC)
            except (ValueError, TypeError, OverflowError):
                is_naive = isinstance(value, datetime) and value.tzinfo is None
                return value.replace(tzinfo=UTC) if is_naive else value

        return read_or_leave


class ExactText(TypeDecorator[str]):
    """Text compared byte by byte: case, accents and trailing spaces count, in every collation of the database."""

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
    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """Encode for MySQL and MariaDB; other databases take the text as it is, without a call for each value."""
        return super().bind_processor(dialect) if dialect.name in _MYSQL else self.impl_instance.bind_processor(dialect)

    @override
    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Decode the bytes of MySQL and MariaDB.

        SQLite may have bytes where text is expected, if another program has written them; they are returned as bytes.
        """
        read = self.impl_instance.result_processor(dialect, coltype)
        if dialect.name not in _MYSQL:
            return read

        def decoded(value: Any) -> Any:
            value = value if read is None else read(value)
            return bytes(value).decode(errors="surrogateescape") if isinstance(value, bytes | bytearray) else value

        return decoded


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
    """Bytes of any length; in SQLite also any other value that a program has written there."""

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


DIGEST: Final = LargeBinary().with_variant(BINARY(32), "mysql", "mariadb")
"""A SHA-256: 32 bytes."""
KEY: Final = "message_id"
_ValueT = TypeVar("_ValueT")


class MessageColumn(NamedTuple):
    """The column of one attribute of DelayedMessage.

    `at_first`: its value in a new row: the value of the column of this name, or this number; None: the sender's value.
    """

    name: str
    type: TypeEngine[Any]
    nullable: bool = False
    at_first: str | int | None = None

    def in_table(self) -> Column[Any]:
        """The column of a table in which messages wait."""
        default = str(self.at_first) if isinstance(self.at_first, int) else None
        return Column(
            self.name, self.type, primary_key=self.name == KEY, nullable=self.nullable, server_default=default
        )


COLUMNS: Final = (
    MessageColumn(KEY, ExactText(MAX_MESSAGE_ID_BYTES)),
    MessageColumn("destination", ExactText(MAX_ADDRESS_BYTES)),
    MessageColumn("due_time", UtcDateTime()),
    MessageColumn("next_attempt", UtcDateTime(), at_first="due_time"),
    MessageColumn("failure_count", Integer(), at_first=0),
    MessageColumn("headers", Json(), nullable=True),
    MessageColumn("properties", Json(), nullable=True),
    MessageColumn("body", Body()),
)
"""In the order in which rows hold them."""
NAMES: Final = tuple(column.name for column in COLUMNS)
MESSAGE_KEY: Final = "message_key"
"""The column of a message's key; NULL: it has none."""
FIRST_SENT: Final = "first_sent"
"""The column of when the first of those messages was sent that have replaced one another under a key."""
FAILURES: Final = "failures"
"""The column of why forwarding has failed: a line for each attempt, as in `delaystore.message`."""
FAILURES_OF: Final = "failures_of"
"""The column of the message_id whose failures these are: a row is given to another message with the same key."""
NOT_AFTER: Final = "not_after"
"""The column of the time after which a message is not delivered any more; NULL: it has none."""
ATTEMPT: Final = "attempt"
"""The column of a load's staging for the task attempt that wrote a row."""
LOAD: Final = "load_number"
"""The column of the number of the load that stored a message; NULL: no load did."""
WITH_NOT_AFTER: Final = (*NAMES, NOT_AFTER)
"""The columns of rows that may have a latest delivery."""
SENT: Final = tuple(column for column in COLUMNS if column.at_first is None)
"""The columns whose values the sender gives."""


def message_columns(table: FromClause) -> list[ColumnElement[Any]]:
    """The columns of `table` that hold a message, in the order of COLUMNS."""
    return [table.c[name] for name in NAMES]


def in_order(table: FromClause) -> list[ColumnElement[Any]]:
    """The columns of `table` by which messages are ordered: those of a Position."""
    return [table.c[name] for name in Position._fields]


def completed(sent: Mapping[str, _ValueT], number: Callable[[int], _ValueT]) -> list[_ValueT]:
    """The values of new rows, in the order of COLUMNS.

    `sent`: those of the columns in SENT, by name; `number` makes a value of the number in `at_first`.
    """
    return [
        number(column.at_first) if isinstance(column.at_first, int) else sent[column.at_first or column.name]
        for column in COLUMNS
    ]
