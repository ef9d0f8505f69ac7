"""What the delay in a record means: a due time, or that the message was delivered at once."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final

from typing_extensions import override

from delaystore.errors import ConfigurationError, InvalidMessageError

X_DELAY: Final = "x-delay"
LONGEST: Final = 2**32 - 1
"""The longest delay of the delayed-message plugin, in milliseconds: 49 days and 17 hours."""
NO_DELAY: Final = "no delay"
_TEXT: Final = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS: Final = 30
"""More than any delay; Python itself refuses 4,300."""


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

    It delivers at once what has no delay, one of 0 or less, one above `LONGEST`, or something that is no number.
    It takes no message with a text that is no whole number. What it delivers has its x-delay negated.
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
            "ones cut the fraction off; do so, or leave the line out"
        )
    return whole


def _in_text(delay: str) -> int:
    if not _TEXT.fullmatch(delay):
        raise InvalidMessageError(f"its delay {delay[:40]!r} is no whole number; the plugin takes no such message")
    return int(delay) if len(delay) <= _MOST_DIGITS else 10**_MOST_DIGITS * (-1 if delay[0] == "-" else 1)


_KNOWN: Final[Mapping[str, Delays]] = {PluginDelays.name: PluginDelays()}
MILLISECONDS: Final = MillisecondDelays()


def delays_of(name: str | None) -> Delays:
    """Those of the parameter `delay_of`; None: the default. ConfigurationError for an unknown name."""
    if name is None:
        return MILLISECONDS
    if name not in _KNOWN:
        raise ConfigurationError(f"delay_of={name!r} is unknown; known is {', '.join(_KNOWN)}")
    return _KNOWN[name]
