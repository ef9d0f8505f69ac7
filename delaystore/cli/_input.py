"""Standard input, which whoever started the process may have closed."""

import sys
from typing import BinaryIO

from delaystore.errors import ConfigurationError


def standard_input() -> BinaryIO:
    """Its bytes; ConfigurationError where it is closed."""
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed; name a file in place of -")
    return sys.stdin.buffer
