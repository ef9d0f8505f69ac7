"""Secrets in files, which containers and systemd hand to a program: `@FILE` in place of a text."""

from pathlib import Path

from delaystore.errors import ConfigurationError


def text_or_file(given: str, name: str, what: str = "the URL") -> str:
    """`given`; or of `@FILE` the one line that the file holds.

    `name`: what errors call it. `what`: what the file is to hold. Raises ConfigurationError.
    """
    if not given.startswith("@"):
        return given
    try:
        lines = contents(given, name).strip().splitlines()
    except UnicodeDecodeError:
        lines = []
    if len(lines) != 1:
        raise ConfigurationError(f"{name} {given}: the file must hold one line, {what}, and nothing else")
    return lines[0]


def contents(given: str, name: str) -> str:
    """What the file of `@FILE` holds. Raises ConfigurationError; UnicodeDecodeError for what is no UTF-8 text."""
    try:
        return Path(given[1:]).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{name} {given}: the file cannot be read: {error.strerror}") from None
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        raise ConfigurationError(f"{name} {given!r}: there can be no such file") from None  # a null character
