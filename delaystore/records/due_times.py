"""Due times as files have them."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.times import parse_time

UNITS: Final = {"s": timedelta(seconds=1), "ms": timedelta(milliseconds=1), "us": timedelta(microseconds=1)}
"""What a number counts since 1970, by the value of the parameter `due_unit`."""
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DueTimes:
    """How times are read.

    `unit`: of numbers; None: numbers are refused. `zone`: of times without an offset; None: such times are refused.
    """

    unit: timedelta | None = None
    zone: ZoneInfo | None = None

    def parse(self, value: Any) -> datetime:
        """The instant that `value` is: ISO 8601, or a number since 1970, or what a Parquet file has.

        Raises InvalidMessageError for anything else, and for a time that could be several instants.
        """
        if isinstance(value, datetime):
            return self._aware(value)
        if isinstance(value, str):
            return self._parse_text(value.strip())
        if isinstance(value, int | float | Decimal) and type(value) is not bool:
            return self._from_number(value)
        if value is None:
            raise InvalidMessageError("it has no due time")
        raise InvalidMessageError(f"its due time is of the type {type(value).__name__}, neither text nor a number")

    def _parse_text(self, text: str) -> datetime:
        if _NUMBER.fullmatch(text):
            return self._from_number(Decimal(text))
        try:
            return self._aware(parse_time(text))
        except InvalidMessageError:
            raise
        except ValueError as error:
            raise InvalidMessageError(f"its due time {text[:40]!r} {error}") from None

    def _from_number(self, number: int | float | Decimal) -> datetime:
        if self.unit is None:
            raise InvalidMessageError(
                f"its due time {str(number)[:40]} is a number; say what it counts since 1970: due_unit=s, ms or us"
            )
        try:
            # rounds away a float's own error, which is at most a microsecond
            microseconds = round(number * (self.unit // UNITS["us"]))
            return _EPOCH + timedelta(microseconds=microseconds)
        except ArithmeticError:
            raise InvalidMessageError("its due time, as a number, is out of range") from None
        except ValueError:
            raise InvalidMessageError(f"its due time {number} is no time") from None

    def _aware(self, instant: datetime) -> datetime:
        try:
            if instant.utcoffset() is not None:
                return instant.astimezone(UTC)
            if self.zone is None:
                raise InvalidMessageError(
                    f"its due time {instant.isoformat()} has no time zone; say which with timezone=UTC or another"
                )
            here = instant.replace(tzinfo=self.zone)
            if here.utcoffset() != here.replace(fold=1).utcoffset():
                raise InvalidMessageError(
                    f"its due time {instant.isoformat()} comes twice or never in {self.zone.key}, where clocks change"
                )
            return here.astimezone(UTC)
        except OverflowError:
            raise InvalidMessageError(f"its due time {instant.isoformat()} is out of range") from None


def due_times(unit: str | None, zone: str | None) -> DueTimes:
    """As the parameters `due_unit` and `timezone` say; ConfigurationError for an unknown value."""
    if unit is not None and unit not in UNITS:
        raise ConfigurationError(f"due_unit={unit!r} is unknown; known are {', '.join(UNITS)}")
    try:
        return DueTimes(UNITS[unit] if unit else None, ZoneInfo(zone) if zone else None)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(f"timezone={zone!r} is unknown; write UTC or a name such as Europe/Berlin") from None
