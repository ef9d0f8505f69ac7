"""How large a fault test is: small in `make test`, at full count in `make soak`."""

import os
from typing import Final, TypeVar

Value = TypeVar("Value")

SOAK: Final = os.environ.get("DELAYSTORE_SOAK") == "1"  # read before the tests' clean environment hides it


def scaled(small: Value, full: Value) -> Value:
    """`full` where DELAYSTORE_SOAK=1, else `small`."""
    return full if SOAK else small
