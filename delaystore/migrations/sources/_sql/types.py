"""Instants of tables that are not ours."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, Double
from sqlalchemy.dialects.mssql import DATETIMEOFFSET
from sqlalchemy.types import TypeDecorator, TypeEngine
from typing_extensions import override


class Instant(TypeDecorator[datetime]):
    """An aware datetime in UTC, in a column of any type of time; one without a time zone holds UTC."""

    impl = DateTime
    cache_ok = True

    def __init__(self, reflected: TypeEngine[Any]) -> None:
        self.reflected = reflected
        super().__init__()

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(self.reflected)

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC, aware where the column is."""
        if value is None:
            return None
        aware = isinstance(self.reflected, DATETIMEOFFSET) or bool(getattr(self.reflected, "timezone", False))
        value = value.astimezone(UTC)
        return value if aware else value.replace(tzinfo=None)

    @override
    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """To an aware UTC datetime; what the driver could not make one of comes as it is."""
        if not isinstance(value, datetime):
            return value
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class EpochSeconds(TypeDecorator[datetime]):
    """An aware datetime in UTC, in a column of seconds since 1970, to the microsecond."""

    impl = Double
    cache_ok = True

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> float | None:
        return None if value is None else value.timestamp()

    @override
    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """What is no instant that Python can represent comes as it is."""
        try:
            return None if value is None else datetime.fromtimestamp(value, UTC)
        except (OverflowError, TypeError, ValueError):
            return value
