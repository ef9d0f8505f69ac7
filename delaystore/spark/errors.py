"""Our errors, dug out of what Spark makes of them.

An error in one of Spark's Python workers reaches the driver as text, within pages of JVM stack. Python's traceback ends
with a line such as `delaystore.errors.ConfigurationError: the option store is missing; ...`, which Spark leaves intact.
"""

import re
from typing import Final

from delaystore import errors
from delaystore.errors import DelaystoreError

_LINE: Final = re.compile(r"^[ \t]*(?:[\w.]*[:] )?delaystore\.errors\.(\w+): (.+)$", re.MULTILINE)
_FOLLOWED: Final = re.compile(r"\s*(?:During handling of|The above exception was)")
"""What follows an error that led to another, in one traceback."""


def plain_error(exception: BaseException) -> DelaystoreError | None:
    """The error of ours that `exception` is or tells of, with its one line as text; None: it tells of none.

    Only its class and text came across: attributes, such as a DuplicateMessageError's `message_ids`, are not there.
    """
    if isinstance(exception, DelaystoreError):
        return exception
    text = str(exception)
    for found in _LINE.finditer(text):
        kind = getattr(errors, found[1], None)
        if not (isinstance(kind, type) and issubclass(kind, DelaystoreError)):
            continue
        if _FOLLOWED.match(text, found.end()) is None:
            return _rebuilt(kind, found[2].strip())
    return None


def _rebuilt(kind: type[DelaystoreError], text: str) -> DelaystoreError:
    """An error of that class whose text is `text`, whatever its own constructor makes of its arguments."""
    error = kind.__new__(kind)
    error.args = (text,)
    return error
