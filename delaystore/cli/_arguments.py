"""Arguments as people write them: due times, positions, pairs, headers, addresses."""

from datetime import datetime, timedelta
from typing import Any, Final

from delaystore.errors import ConfigurationError
from delaystore.message import Position
from delaystore.strict_json import JsonError, parse_json
from delaystore.times import parse_duration, parse_instant

_MAX_PORT: Final = 65535


def parse_due(delay: str | None, at: str | None) -> tuple[timedelta | None, datetime | None]:
    """What --delay and --at say, None for the one that is not given; ConfigurationError unless just one of them is."""
    if delay is not None and at is not None:
        raise ConfigurationError("--delay and --at are both given; pass one of them")
    if delay is None and at is None:
        raise ConfigurationError("when is it due? pass --delay DURATION or --at TIME")
    return (
        None if delay is None else parse_duration(delay, "--delay"),
        None if at is None else parse_instant(at, "--at"),
    )


def parse_position(text: str | None, option: str) -> Position | None:
    """The key of a page; ConfigurationError naming `option` for anything else."""
    try:
        if text is None:
            return None
        text.encode()  # half a character would be an error of the database
        return Position.parse(text)
    except ValueError:
        raise ConfigurationError(f"{option} {text!r} is no page key; pass what the page before said") from None


def parse_pair(text: str, option: str, form: str = "KEY=VALUE") -> tuple[str, str]:
    """`KEY=VALUE`; ConfigurationError naming `option` for anything else, and for half a character."""
    key, mark, value = text.partition("=")
    if not mark or not key:
        raise ConfigurationError(f"{option} {text!r} is not of the form {form}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{option} {text!r} is no UTF-8 text") from None
    return key, value


def parse_headers(text: str, option: str) -> dict[str, Any]:
    """A JSON object; ConfigurationError naming `option` for anything else."""
    try:
        headers = parse_json(text)
    except JsonError as error:
        raise ConfigurationError(f"{option} {error}") from None
    if not isinstance(headers, dict):
        raise ConfigurationError(f'{option} must be an object, as in {{"attempt": 1}}')
    return headers


def parse_address(text: str, option: str) -> tuple[str, int]:
    """`HOST:PORT`, also `[::1]:9464`; ConfigurationError naming `option` for anything else."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host.strip("[]") or not port.isascii() or not port.isdigit() or int(port) > _MAX_PORT:
        raise ConfigurationError(f"{option} {text!r} is no address; write HOST:PORT, as in 127.0.0.1:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)
