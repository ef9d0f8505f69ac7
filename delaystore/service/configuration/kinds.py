"""What a key of the configuration can hold: how it is read, and how it is shown."""

import json
from abc import ABC, abstractmethod
from datetime import timedelta
from enum import StrEnum
from typing import Generic, TypeVar

from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.times import duration_text, parse_duration

Value = TypeVar("Value")
Named = TypeVar("Named", bound=StrEnum)
Shown = str | int | float | bool | list[str]
"""As TOML has it."""


class Kind(ABC, Generic[Value]):
    """One kind of value. `wanted`: what errors say it must be."""

    wanted: str

    @abstractmethod
    def read(self, given: object) -> Value:
        """The value that `given`, a scalar of TOML or an option's text, stands for.

        Raises ConfigurationError, whose text goes on after the key's name.
        """

    @abstractmethod
    def shown(self, value: Value) -> Shown:
        """The value as TOML has it; it shows no password."""

    def refusal(self, given: object) -> ConfigurationError:
        """That `given` is not what is wanted."""
        return ConfigurationError(f"must be {self.wanted}, not {literal(given)}")


def literal(given: object) -> str:
    """A value for people, as it stands in a file."""
    if isinstance(given, dict):
        return "a table"
    if isinstance(given, list):
        return "an array"
    if isinstance(given, str | bool | int | float):
        return json.dumps(given[:80] if isinstance(given, str) else given, ensure_ascii=False)
    return str(given)  # a date or a time


class Text(Kind[str]):
    """A text, which is not empty."""

    wanted = "a text"

    @override
    def read(self, given: object) -> str:
        if not isinstance(given, str) or not given.strip():
            raise self.refusal(given)
        return given

    @override
    def shown(self, value: str) -> str:
        return value


class Texts(Kind[tuple[str, ...]]):
    """An array of texts, or one text with commas."""

    wanted = "an array of texts, or a text with commas"

    @override
    def read(self, given: object) -> tuple[str, ...]:
        several = given.split(",") if isinstance(given, str) else given
        if not isinstance(several, list) or not all(isinstance(each, str) and each.strip() for each in several):
            raise self.refusal(given)
        return tuple(each.strip() for each in several)

    @override
    def shown(self, value: tuple[str, ...]) -> list[str]:
        return list(value)


class Flag(Kind[bool]):
    """true or false."""

    wanted = "true or false"

    @override
    def read(self, given: object) -> bool:
        if not isinstance(given, bool):
            raise self.refusal(given)
        return given

    @override
    def shown(self, value: bool) -> bool:
        return value


class Whole(Kind[int]):
    """A whole number; `least`: from where on."""

    def __init__(self, least: int = 0) -> None:
        self._least = least
        self.wanted = f"a whole number from {least}"

    @override
    def read(self, given: object) -> int:
        if type(given) is not int or given < self._least:
            raise self.refusal(given)
        return given

    @override
    def shown(self, value: int) -> int:
        return value


class Span(Kind[timedelta]):
    """A duration: a text such as 30s, or a number of seconds; `zero`: whether it may be 0."""

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero
        self.wanted = "a duration" if zero else "a duration above 0"

    @override
    def read(self, given: object) -> timedelta:
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise ConfigurationError(f"must be {self.wanted}, as in 30s, not {literal(given)}")
        span = _duration(str(given))
        if not span and not self._zero:
            raise self.refusal(given)
        return span

    @override
    def shown(self, value: timedelta) -> str:
        text = duration_text(value).replace(".0s", "s")
        exact = parse_duration(text, "") == value
        return text if exact else f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text, "")
    except ConfigurationError as error:
        raise ConfigurationError(str(error).strip()) from None


class OneOf(Kind[Named]):
    """A name of `names`."""

    def __init__(self, names: type[Named]) -> None:
        self._names = names
        self.wanted = f"one of {', '.join(names)}"

    @override
    def read(self, given: object) -> Named:
        try:
            return self._names(str(given))
        except ValueError:
            raise self.refusal(given) from None

    @override
    def shown(self, value: Named) -> str:
        return value.value
