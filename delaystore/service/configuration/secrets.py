"""What nobody is shown: URLs, which may hold a password, users, tokens."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.secret_files import contents, text_or_file
from delaystore.service.configuration.kinds import Kind
from delaystore.service.configuration.masking import HIDDEN, masked
from delaystore.service.configuration.regular import check_regular

_VARIABLE: Final = re.compile(r"\$\{\w+\}")
_SCHEME: Final = re.compile(r"[\w+.-]+")


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
        if text.startswith("@"):
            check_regular(Path(text[1:]), text)
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
        if not mark or not _SCHEME.fullmatch(scheme) or (self._schemes and name not in self._schemes):
            known = " or ".join(f"{each}://" for each in self._schemes)
            raise ConfigurationError(f"must begin with {known or 'a scheme, as in sqlite:///app.db'}")
        if name in ("http", "https") and not _can_be_read(value):
            raise ConfigurationError("cannot be read; check host and port")
        if self._lasting and name == "memory":
            raise ConfigurationError(
                "is in memory, which ends with the service, and each message in it; use a database"
            )
        return value

    @override
    def masked(self, given: str) -> str:
        return masked(given)


def _can_be_read(url: str) -> bool:
    """Whether it can be taken apart."""
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False
