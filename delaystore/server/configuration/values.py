"""Values of the configuration that TOML has no type for: durations, lists of names, addresses, secrets, URLs.

The type of a key carries its form, as in `Annotated[timedelta, Span()]`. msgspec checks keys without a form. Secrets
may be written as @FILE or with ${NAME}, and are shown without passwords.
"""

import json
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, get_args
from urllib.parse import urlsplit

from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.schedules.documents import ScheduleFile, schedule_file
from delaystore.text import contents, duration_text, parse_duration, text_or_file

HIDDEN: Final = "***"
VARIABLE: Final = re.compile(r"\$\{\w+\}")
_ANY_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_PASSWORD: Final = re.compile(rf"(://[^:/]*:)(?!{VARIABLE.pattern}@[^@]*$)(?s:.*)@")
"""Unless it is a variable's; up to the last @, as a password may have one."""
_SECRET: Final = re.compile("pass|pwd|secret|token|key|cred|auth|sig|connect|dsn|options", re.IGNORECASE)
"""Names of a URL's options whose values may be secret."""
_USER: Final = rf"(?:[^:/?#\s=;]*:(?:\*\*\*|{VARIABLE.pattern})|[^:@/?#\s=;]*)@"
_HOST: Final = rf"(?:\[[\w:.%]*\]|[^:@/?#\s=;\[\]]*)(?::(?:\d+|{VARIABLE.pattern}))?"
_UNDERSTOOD: Final = re.compile(rf"[\w+.-]+://(?:{_USER})?{_HOST}(?:,{_HOST})*(?:/[^?@#=;\t\r\n]*)?")
"""A URL, masked, without its options: any other text may have a secret anywhere."""


def with_variables(text: str, environment: Mapping[str, str]) -> str:
    """Return `text` with the values of the variables that it names; raise ConfigurationError for an unset one."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in environment:
            raise ConfigurationError(f"names the environment variable {name!r}, which is not set")
        return environment[name]

    return _ANY_VARIABLE.sub(value, text)


def masked(url: str) -> str:
    """Return `url` with *** in place of each part that may be secret, or *** alone for an unusual URL.

    The name of a variable is shown: ${NAME}.
    """
    if VARIABLE.fullmatch(url):
        return url
    address, mark, options = _PASSWORD.sub(rf"\1{HIDDEN}@", url).partition("?")
    if not _UNDERSTOOD.fullmatch(address):
        return HIDDEN
    return address + mark + "&".join(map(_masked_option, options.split("&"))) if mark else address


def _masked_option(option: str) -> str:
    name, mark, value = option.partition("=")
    if not mark:
        return HIDDEN
    if VARIABLE.fullmatch(value) or not (_SECRET.search(name) or re.search("[=;#@]|%3d", value, re.IGNORECASE)):
        return option
    return f"{name}={HIDDEN}"


def check_regular(path: Path, name: str) -> None:
    """Raise ConfigurationError for a pipe or a device, which cannot be read again. `name`: what errors call it."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # reading the file gives the reason
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ConfigurationError(
            f"{name} is no regular file, and could not be read again; write its contents into a file, and name that"
        )


ValueT = TypeVar("ValueT")
Shown = str | int | float | bool | list[str]
"""A value as TOML has it."""


class Form(ABC, Generic[ValueT]):
    """How the values of a key are written. `wanted`: what errors say a value must be."""

    wanted: str

    @abstractmethod
    def read(self, given: object) -> ValueT:
        """Return the value that `given`, a value of TOML or an option's text, stands for.

        Raises ConfigurationError, whose text continues the key's name.
        """

    @abstractmethod
    def shown(self, value: ValueT) -> Shown:
        """Return the value as TOML has it, without passwords."""

    def refusal(self, given: object) -> ConfigurationError:
        """Return the error for a value of another form."""
        return ConfigurationError(f"must be {self.wanted}, not {literal(given)}")


def form_of(declared: Any) -> Form[Any] | None:
    """Return the form that the type of a key carries, also as a part of a union; None: the type says all."""
    for each in (declared, *get_args(declared)):
        for note in getattr(each, "__metadata__", ()):
            if isinstance(note, Form):
                return note
    return None


def literal(given: object) -> str:
    """Return a value for people, as it stands in a file."""
    if isinstance(given, dict):
        return "a table"
    if isinstance(given, list):
        return "an array"
    if isinstance(given, str | bool | int | float):
        return json.dumps(given[:80] if isinstance(given, str) else given, ensure_ascii=False)
    return str(given)  # a date or a time


class NameList(Form[tuple[str, ...]]):
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


class Span(Form[timedelta]):
    """A duration: a text such as 30s, or a number of seconds. `zero`: whether it may be 0."""

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero
        self.wanted = "a duration" if zero else "a duration above 0"

    @override
    def read(self, given: object) -> timedelta:
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise ConfigurationError(f"must be {self.wanted}, as in 30s, not {literal(given)}")
        try:
            span = parse_duration(str(given), "")
        except ConfigurationError as error:
            raise ConfigurationError(str(error).strip()) from None
        if not span and not self._zero:
            raise self.refusal(given)
        return span

    @override
    def shown(self, value: timedelta) -> str:
        text = duration_text(value)
        exact = parse_duration(text, "") == value
        return text if exact else f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a server listens. `port` 0: any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listen(Form[ListenAddress]):
    """HOST:PORT, also [::1]:9464."""

    wanted = "HOST:PORT, as in 127.0.0.1:9464"
    _MAX_PORT: Final = 65535
    _PATTERN: Final = re.compile(r"(?:\[(?P<inner>[^\[\]]+)\]|(?P<host>[^\[\]\s/:@\x00-\x1f]+)):(?P<port>[0-9]{1,5})")
    """Addresses of IPv6 stand in brackets, because otherwise their last group could be the port."""

    @override
    def read(self, given: object) -> ListenAddress:
        found = self._PATTERN.fullmatch(given.strip()) if isinstance(given, str) else None
        if found is None or int(found["port"]) > self._MAX_PORT:
            raise self.refusal(given)
        if found["inner"] is not None:
            try:
                IPv6Address(found["inner"])
            except ValueError:
                raise self.refusal(given) from None
        return ListenAddress(found["inner"] or found["host"], int(found["port"]))

    @override
    def shown(self, value: ListenAddress) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that is never shown. `given`: the configuration's own text, perhaps @FILE or with ${NAME}."""

    value: str = field(repr=False)
    given: str = field(repr=False, compare=False)


class Hidden(Form[Secret]):
    """A secret: a text, perhaps with variables, or @FILE."""

    wanted = "a text"
    _what = "the secret"
    """The expected content of a file."""

    @override
    def read(self, given: object) -> Secret:
        before = given if isinstance(given, Secret) else None
        text = before.value if before is not None else given
        if not isinstance(text, str) or not text.strip():
            raise ConfigurationError(f"must be {self.wanted}")
        if text.startswith("@"):
            check_regular(Path(text[1:]), text)
        try:
            value = self.checked(self.resolved(text))
        except ConfigurationError as error:
            raise ConfigurationError(str(error).strip()) from None
        return Secret(value, text if before is None else before.given)

    def resolved(self, text: str) -> str:
        """Return the text, or its file's content."""
        return text_or_file(text, "", self._what)

    def checked(self, value: str) -> str:
        """Return the text if it is valid; raise ConfigurationError, which does not show it."""
        return value

    @override
    def shown(self, value: Secret) -> str:
        return value.given if value.given.startswith("@") else self.masked(value.given)

    def masked(self, given: str) -> str:
        """Return the text without its secret parts; the name of a variable is shown."""
        return given if VARIABLE.fullmatch(given) else HIDDEN


class FileOfSchedules(Form[ScheduleFile]):
    """The name of a file of schedules, which is read with the configuration."""

    wanted = "the name of a file"

    @override
    def read(self, given: object) -> ScheduleFile:
        if not isinstance(given, str) or not given.strip():
            raise self.refusal(given)
        check_regular(Path(given), given)
        return schedule_file(Path(given))

    @override
    def shown(self, value: ScheduleFile) -> str:
        return str(value.path)


class Entries(Hidden):
    """Users or tokens, as the web page takes them, with any white space between. `parse`: raises ConfigurationError."""

    def __init__(self, parse: Callable[[str, str], object]) -> None:
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
            raise ConfigurationError("has no entries; leave it out to accept only local requests")
        return value


class Url(Hidden):
    """A URL. `schemes`: with which it may begin; none: any. `lasting`: an in-memory store is refused."""

    wanted = "a URL"
    _what = "the URL"
    _SCHEME: Final = re.compile(r"[\w+.-]+")

    def __init__(self, *schemes: str, lasting: bool = False) -> None:
        self._schemes = schemes
        self._lasting = lasting

    @override
    def checked(self, value: str) -> str:
        scheme, mark, _ = value.partition(":")
        name = scheme.partition("+")[0].lower()
        if not mark or not self._SCHEME.fullmatch(scheme) or (self._schemes and name not in self._schemes):
            known = " or ".join(f"{each}://" for each in self._schemes)
            raise ConfigurationError(f"must begin with {known or 'a scheme, as in sqlite:///app.db'}")
        if name in ("http", "https") and not _has_valid_port(value):
            raise ConfigurationError("cannot be read; check host and port")
        if self._lasting and name == "memory":
            raise ConfigurationError(
                "is in memory, so its messages would be lost when the service ends; use a database"
            )
        return value

    @override
    def masked(self, given: str) -> str:
        return masked(given)


def _has_valid_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False
