"""Secrets in texts of the configuration: variables ${NAME}, files @FILE, and URLs shown without passwords."""

import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from delaystore.errors import ConfigurationError

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
