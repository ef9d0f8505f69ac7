"""What a key of the configuration can hold: how it is read, and how it is shown."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final, Generic, TypeVar

from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.secret_files import contents, text_or_file
from delaystore.times import duration_text, parse_duration

Value = TypeVar("Value")
Named = TypeVar("Named", bound=StrEnum)
Shown = str | int | float | bool | list[str]
"""As TOML has it."""
HIDDEN: Final = "***"
_MAX_PORT: Final = 65535
_VARIABLE: Final = re.compile(r"\$\{\w+\}")
_PASSWORD: Final = re.compile(r"(://[^:/@]*:)(?!\$\{\w+\}@)[^@]*@")
"""Of a URL, unless it is a variable's."""
_SECRET_OPTION: Final = re.compile(
    r"([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)(?!\$\{\w+\}(?:&|$))[^&]*", re.IGNORECASE
)


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


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens. `port` 0: any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listen(Kind[Address]):
    """HOST:PORT, also [::1]:9464."""

    wanted = "HOST:PORT, as in 127.0.0.1:9464"

    @override
    def read(self, given: object) -> Address:
        if not isinstance(given, str):
            raise self.refusal(given)
        host, colon, port = given.strip().rpartition(":")
        if not colon or not host.strip("[]") or not (port.isascii() and port.isdigit()) or int(port) > _MAX_PORT:
            raise self.refusal(given)
        return Address(host.removeprefix("[").removesuffix("]"), int(port))

    @override
    def shown(self, value: Address) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that nobody is shown. `given`: as it stands in the configuration, perhaps @FILE or with ${NAME}."""

    value: str = field(repr=False)
    given: str = field(repr=False, compare=False)


class Hidden(Kind[Secret]):
    """A secret, or @FILE, or with variables. `what`: what a file is to hold."""

    wanted = "a text"

    def __init__(self, what: str = "the secret") -> None:
        self._what = what

    @override
    def read(self, given: object) -> Secret:
        before = given if isinstance(given, Secret) else None
        text = before.value if before is not None else given
        if not isinstance(text, str) or not text.strip():
            raise ConfigurationError(f"must be {self.wanted}")
        try:
            value = self.checked(self.resolved(text))
        except ConfigurationError as error:
            raise ConfigurationError(str(error).strip()) from None
        return Secret(value, text if before is None else before.given)

    def resolved(self, text: str) -> str:
        """The text, or what its file holds."""
        return text_or_file(text, "", self._what)

    def checked(self, value: str) -> str:
        """The text, if it can be; raises ConfigurationError, which does not show it."""
        return value

    @override
    def shown(self, value: Secret) -> str:
        return value.given if value.given.startswith("@") else self.masked(value.given)

    def masked(self, given: str) -> str:
        """The text without what is secret; a variable's name is not."""
        return given if _VARIABLE.fullmatch(given) else HIDDEN


class Entries(Hidden):
    """Users or tokens, as the page takes them, with any white space between. `parse`: raises ConfigurationError."""

    def __init__(self, parse: Callable[[str, str], object]) -> None:
        super().__init__()
        self._parse = parse

    @override
    def resolved(self, text: str) -> str:
        try:
            return contents(text, "") if text.startswith("@") else text
        except UnicodeDecodeError:
            raise ConfigurationError(f"{text}: the file is no UTF-8 text") from None

    @override
    def checked(self, value: str) -> str:
        try:
            found = self._parse(value, "")
        except ConfigurationError as error:
            raise ConfigurationError(str(error).removeprefix(": ")) from None
        if not found:
            raise ConfigurationError("has nobody in it; leave it out to let only this machine in")
        return value


class Url(Hidden):
    """A URL. `schemes`: with which it may begin; none: any. `lasting`: it may not be in memory."""

    wanted = "a URL"

    def __init__(self, *schemes: str, lasting: bool = False) -> None:
        super().__init__("the URL")
        self._schemes = schemes
        self._lasting = lasting

    @override
    def checked(self, value: str) -> str:
        scheme, mark, _ = value.partition(":")
        name = scheme.partition("+")[0].lower()
        if not mark or not name or (self._schemes and name not in self._schemes):
            known = " or ".join(f"{each}://" for each in self._schemes)
            raise ConfigurationError(f"must begin with {known or 'a scheme, as in sqlite:///app.db'}")
        if self._lasting and name == "memory":
            raise ConfigurationError(
                "is in memory, which ends with the service, and each message in it; use a database"
            )
        return value

    @override
    def masked(self, given: str) -> str:
        return _SECRET_OPTION.sub(rf"\1{HIDDEN}", _PASSWORD.sub(rf"\1{HIDDEN}@", given))
