"""What the format calls its options, and what the command calls them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from delaystore.errors import DelaystoreError

_OF_COMMAND: Final = {
    "loadId": "--load-id",
    "keyColumns": "--key-columns",
    "onDuplicate": "--on-duplicate",
    "unknownColumns": "--unknown-columns",
    "timeZone": "--time-zone",
    "ambiguousTime": "--ambiguous-time",
}
_NAMED: Final = re.compile(rf"(?:the option )?\b({'|'.join(_OF_COMMAND)})\b|the option (rejects|destination)\b")


def in_words_of_the_command(text: str) -> str:
    """`text` of an error, with the command's names of options."""
    return _NAMED.sub(lambda found: _OF_COMMAND.get(found[1]) or f"--{found[2]}", text)


@contextmanager
def words_of_the_command() -> Iterator[None]:
    """Errors of the block name the command's options."""
    try:
        yield
    except DelaystoreError as error:
        error.args = (in_words_of_the_command(str(error)),)
        raise
