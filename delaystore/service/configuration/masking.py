"""URLs without what is secret in them."""

import re
from typing import Final

HIDDEN: Final = "***"
_VARIABLE: Final = r"\$\{\w+\}"
_PASSWORD: Final = re.compile(rf"(://[^:/]*:)(?!{_VARIABLE}@[^@]*$)(?s:.*)@")
"""Unless it is a variable's; up to the last @, as a password may have one."""
_SECRET: Final = re.compile("pass|pwd|secret|token|key|cred|auth|sig|connect|dsn|options", re.IGNORECASE)
"""What names of a URL's options have whose values may be secret."""
_USER: Final = rf"(?:[^:/?#\s=;]*:(?:\*\*\*|{_VARIABLE})|[^:@/?#\s=;]*)@"
_HOST: Final = rf"(?:\[[\w:.%]*\]|[^:@/?#\s=;\[\]]*)(?::(?:\d+|{_VARIABLE}))?"
_UNDERSTOOD: Final = re.compile(rf"[\w+.-]+://(?:{_USER})?{_HOST}(?:,{_HOST})*(?:/[^@?#=;\t\r\n]*)?")
"""A URL, masked, without its options: anything else may have a secret anywhere."""


def masked(url: str) -> str:
    """`url` with *** in place of what may be secret, and of all of it where it is no URL as most are.

    A variable's name is shown: ${NAME}.
    """
    if re.fullmatch(_VARIABLE, url):
        return url
    address, mark, options = _PASSWORD.sub(rf"\1{HIDDEN}@", url).partition("?")
    if not _UNDERSTOOD.fullmatch(address):
        return HIDDEN
    return address + mark + "&".join(map(_masked_option, options.split("&"))) if mark else address


def _masked_option(option: str) -> str:
    name, mark, value = option.partition("=")
    if not mark:
        return HIDDEN
    if re.fullmatch(_VARIABLE, value) or not (_SECRET.search(name) or re.search("[=;#@]|%3d", value, re.IGNORECASE)):
        return option
    return f"{name}={HIDDEN}"
