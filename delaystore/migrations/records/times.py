"""Due times as records have them: instants, numbers since 1970, or a delay after a time of sending."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from typing_extensions import override

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.text import clamped_int, parse_time

# What the delay in a record means: a due time, or that the message was delivered at once.

X_DELAY: Final = "x-delay"
LONGEST: Final = 2**32 - 1
"""The longest delay of the delayed-message plugin, in milliseconds: 49 days and 17 hours."""
NO_DELAY: Final = "no delay"
_TEXT: Final = re.compile(r"[+-]?[0-9]+")


class DeliveredAtOnceError(Exception):
    """A record of a message that never waited; its text is the reason, the same for all that have it."""


class Delays(ABC):
    """How the delays of records are read. `name`: how the parameter `delay_of` calls it; empty: it is the default."""

    name: ClassVar[str]

    @abstractmethod
    def due_time(self, sent: datetime, delay: Any) -> datetime:
        """When a message was due that was sent at `sent`, with that in its record as its delay.

        Raises InvalidMessageError where it is none, DeliveredAtOnceError where the message did not wait.
        """

    @abstractmethod
    def headers(self, headers: dict[str, Any]) -> dict[str, Any]:
        """The headers with which the message would have arrived, of those in its record."""


class MillisecondDelays(Delays):
    """A number of milliseconds, or its text."""

    name = ""

    @override
    def due_time(self, sent: datetime, delay: Any) -> datetime:
        try:
            if isinstance(delay, bool):
                raise TypeError
            return sent + timedelta(milliseconds=float(delay))
        except (TypeError, ValueError):
            raise InvalidMessageError(f"its delay {delay!r} is no number of milliseconds") from None
        except OverflowError:
            raise InvalidMessageError(f"its delay {delay!r} is out of range") from None

    @override
    def headers(self, headers: dict[str, Any]) -> dict[str, Any]:
        return headers


class PluginDelays(Delays):
    """`x-delay`, as RabbitMQ's delayed-message plugin reads it: a whole number of milliseconds, or its text.

    It delivers a message at once if the delay is missing, 0 or less, above `LONGEST`, or no number.
    It takes no message with a text that is no whole number. Its delivered messages have a negated x-delay.
    """

    name = "plugin"

    @override
    def due_time(self, sent: datetime, delay: Any) -> datetime:
        milliseconds = _whole_number(delay)
        if milliseconds <= 0:
            raise DeliveredAtOnceError("a delay of 0 or less")
        if milliseconds > LONGEST:
            raise DeliveredAtOnceError(f"a delay above {LONGEST:,} ms")
        try:
            return sent + timedelta(milliseconds=milliseconds)
        except OverflowError:
            raise InvalidMessageError(f"its delay {delay!r} is out of range") from None

    @override
    def headers(self, headers: dict[str, Any]) -> dict[str, Any]:
        if X_DELAY not in headers:
            return headers
        return {**headers, X_DELAY: -_whole_number(headers[X_DELAY])}


def _whole_number(delay: Any) -> int:
    if delay is None:
        raise DeliveredAtOnceError(NO_DELAY)
    if type(delay) is int:
        return delay
    if isinstance(delay, float | Decimal):
        return _without_fraction(delay)
    if isinstance(delay, str):
        return _in_text(delay)
    raise DeliveredAtOnceError("a delay that is no number")


def _without_fraction(delay: float | Decimal) -> int:
    try:
        whole = int(delay)
    except (OverflowError, ValueError):
        raise InvalidMessageError(f"its delay {delay} is no number of milliseconds") from None
    if whole != delay:
        raise InvalidMessageError(
            f"its delay {delay} has a fraction: the plugin for RabbitMQ 3.10 and older delivered it at once, and later "
            "ones cut the fraction off; cut it off too, or leave the line out"
        )
    return whole


def _in_text(delay: str) -> int:
    if not _TEXT.fullmatch(delay):
        raise InvalidMessageError(f"its delay {delay[:40]!r} is no whole number; the plugin takes no such message")
    return clamped_int(delay)


_KNOWN: Final[Mapping[str, Delays]] = {PluginDelays.name: PluginDelays()}
MILLISECONDS: Final = MillisecondDelays()


def delays_of(name: str | None) -> Delays:
    """Those of the parameter `delay_of`; None: the default. ConfigurationError for an unknown name."""
    if name is None:
        return MILLISECONDS
    if name not in _KNOWN:
        raise ConfigurationError(f"delay_of={name!r} is unknown; known is {', '.join(_KNOWN)}")
    return _KNOWN[name]


# Due times as files have them.

UNITS: Final = {"s": timedelta(seconds=1), "ms": timedelta(milliseconds=1), "us": timedelta(microseconds=1)}
"""The unit of a number since 1970, by the value of the parameter `due_unit`."""
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
        """The instant that `value` is: ISO 8601, or a number since 1970, or a Parquet file's value.

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
                f"its due time {str(number)[:40]} is a number; name its unit since 1970: due_unit=s, ms or us"
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
