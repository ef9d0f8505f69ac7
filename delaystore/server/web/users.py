"""Who may look at the page, and who may change something: users, their passwords, and programs' tokens."""

import hashlib
import hmac
import os
import secrets
import time
from base64 import b64decode, b64encode
from binascii import Error as NoBase64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from starlette.requests import HTTPConnection

from delaystore.errors import ConfigurationError

USER: Final = "delaystore.user"
"""The key of an ASGI scope that holds the user of the request."""
USERS_VARIABLE: Final = "DELAYSTORE_WEB_USERS"
TOKENS_VARIABLE: Final = "DELAYSTORE_WEB_TOKENS"
_SCRYPT: Final = "scrypt$"
_COST: Final = {"n": 2**14, "r": 8, "p": 1}
_REMEMBERED: Final = 300.0
"""Seconds, since its last use, for which an accepted password is not checked again."""
_SHORTEST_TOKEN: Final = 16
"""Characters of a token: a program has no use for one that can be guessed."""


class Role(StrEnum):
    """The rights of a user."""

    READ = "read"
    OPERATE = "operate"
    """Read, and change."""


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request.

    Attributes:
        name: As the list of changes shows it; empty: this process's name.
        role: The user's rights.

    """

    name: str
    role: Role = Role.READ

    @property
    def may_operate(self) -> bool:
        """Whether this user may change something."""
        return self.role is Role.OPERATE


def user_of(request: HTTPConnection) -> User:
    """The user of the request, once access is granted."""
    user: User = request.scope[USER]
    return user


@dataclass(frozen=True, slots=True)
class Account:
    """A user with a secret: a password or a token as it is, or `scrypt$SALT$HASH` of a password."""

    user: User
    secret: str = field(repr=False)

    def accepts(self, given: str) -> bool:
        """Whether `given` is the secret; the comparison takes as long wherever they differ. Slow for a hash."""
        if not self.secret.startswith(_SCRYPT):
            return hmac.compare_digest(_digest(given), _digest(self.secret))
        salt, expected = map(b64decode, self.secret.split("$")[1:])
        return hmac.compare_digest(_scrypt(given, salt), expected)


class Accounts:
    """Accounts by name. Accepted passwords are remembered for a while, as a digest, so that a hash is seldom
    checked.
    """

    def __init__(self, accounts: Mapping[str, Account]) -> None:
        self._accounts = accounts
        self._key = secrets.token_bytes(32)
        self._accepted: dict[str, tuple[bytes, float]] = {}
        self._unknown = Account(User(""), next(iter(accounts.values())).secret if accounts else secrets.token_hex())

    def __bool__(self) -> bool:
        return bool(self._accounts)

    def __contains__(self, name: str) -> bool:
        return name in self._accounts

    def known(self, name: str, secret: str) -> User | None:
        """The user of this name, if accepted with this secret a while ago; None: was not."""
        given, now = self.digest(name, secret), time.monotonic()
        before, until = self._accepted.get(name, (b"", now))
        if now >= until or not hmac.compare_digest(before, given):
            return None
        self._accepted[name] = given, now + _REMEMBERED
        return self._accounts[name].user

    def log_in(self, name: str, secret: str) -> User | None:
        """The user of that name and secret; None: there is none. An unknown name takes as long as a wrong secret."""
        account = self._accounts.get(name, self._unknown)
        if not account.accepts(secret) or account is self._unknown:
            return None
        self._accepted[name] = self.digest(name, secret), time.monotonic() + _REMEMBERED
        return account.user

    def digest(self, name: str, secret: str) -> bytes:
        """A digest of both, by which this object alone knows them again."""
        return hmac.digest(self._key, f"{name}\0{secret}".encode(errors="surrogatepass"), "sha256")


def accounts_of(text: str | None, variable: str = USERS_VARIABLE) -> Accounts:
    """The accounts in `NAME:ROLE:PASSWORD`, separated by white space; `@FILE`: in that file. None: there are none.

    Raises ConfigurationError, which calls the text `variable` and shows no password.
    """
    accounts: dict[str, Account] = {}
    for number, entry in enumerate(_entries(text, variable), start=1):
        name, _, rest = entry.partition(":")
        role, _, password = rest.partition(":")
        if not name or not password or role not in set(Role):
            raise ConfigurationError(
                f"{variable}: entry {number} is not of the form NAME:ROLE:PASSWORD, with the role read or operate"
            )
        if name in accounts:
            raise ConfigurationError(f"{variable}: entry {number} names {name!r} again; give each user one entry")
        accounts[name] = Account(User(name, Role(role)), _checked(password, f"{variable}: entry {number}"))
    return Accounts(accounts)


def accounts_from_environment() -> Accounts:
    """The accounts that DELAYSTORE_WEB_USERS names."""
    return accounts_of(os.environ.get(USERS_VARIABLE))


def tokens_of(text: str | None, variable: str = TOKENS_VARIABLE) -> tuple[Account, ...]:
    """The accounts in `TOKEN:ROLE` or `TOKEN:ROLE:NAME`, separated by white space; `@FILE`: in that file.

    Raises ConfigurationError, which calls the text `variable` and shows no token.
    """
    found: list[Account] = []
    for number, entry in enumerate(_entries(text, variable), start=1):
        token, _, rest = entry.partition(":")
        role, _, name = rest.partition(":")
        if role not in set(Role):
            raise ConfigurationError(
                f"{variable}: entry {number} is not of the form TOKEN:ROLE, or TOKEN:ROLE:NAME, with the role read or "
                "operate"
            )
        if len(token) < _SHORTEST_TOKEN:
            raise ConfigurationError(
                f"{variable}: the token of entry {number} is shorter than {_SHORTEST_TOKEN} characters; make one with "
                "openssl rand -hex 32"
            )
        if token.startswith(_SCRYPT):
            raise ConfigurationError(
                f"{variable}: the token of entry {number} is a hash, but tokens are compared as text; write the token"
            )
        if token in (each.secret for each in found):
            raise ConfigurationError(
                f"{variable}: entry {number} repeats the token of another entry; give each entry a different token"
            )
        found.append(Account(User(name or f"token {number}", Role(role)), token))
    return tuple(found)


def hashed(password: str) -> str:
    """`scrypt$SALT$HASH`, to be given in place of `password`."""
    salt = os.urandom(16)
    return _SCRYPT + "$".join(b64encode(part).decode() for part in (salt, _scrypt(password, salt)))


def _entries(text: str | None, variable: str) -> list[str]:
    if text is None or not text.startswith("@"):
        return (text or "").split()
    try:
        return Path(text[1:]).read_text(encoding="utf-8-sig").split()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigurationError(f"{variable} {text}: the file cannot be read: {reason}") from None


def _checked(secret: str, where: str) -> str:
    if secret.startswith(_SCRYPT):
        try:
            salt, key = (b64decode(part, validate=True) for part in secret.split("$")[1:])
        except (ValueError, NoBase64Error):
            salt = key = b""
        if not salt or not key:
            raise ConfigurationError(f"{where} has a broken hash; make it with delaystore web --hash-password")
    return secret


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(errors="surrogatepass"), salt=salt, maxmem=2**26, dklen=32, **_COST)


def _digest(secret: str) -> bytes:
    """As long for every secret, so that a comparison does not tell its length."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()
