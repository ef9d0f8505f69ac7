"""What a load says, in the command line's words: `--load-id` for "the option loadId", its name elsewhere."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from delaystore.cli._output import OutputError
from delaystore.errors import DelaystoreError, DuplicateKeyError

_WORDS: Final = re.compile("(?=[A-Z])")
_OPTIONS: Final = (
    "destination", "schema", "table", "loadId", "keyColumns", "keyColumn", "onKey", "maxWait", "onDuplicate",
    "unknownColumns", "timeZone", "ambiguousTime", "rejects",
)  # fmt: skip
_NAME: Final = re.compile(rf"(?:{'|'.join(_OPTIONS)})\b")
_NAMED: Final = re.compile(rf"\bthe options? ({_NAME.pattern}(?: and {_NAME.pattern})*)")
NO_OTHERS: Final[Mapping[str, str]] = MappingProxyType({})


def option_of(name: str, typed: Mapping[str, str] = NO_OTHERS) -> str:
    """`--load-id`, for `loadId`. `typed`: options that the command has by another name."""
    return typed.get(name) or f"--{_WORDS.sub('-', name).lower()}"


def as_typed(text: str, typed: Mapping[str, str] = NO_OTHERS) -> str:
    """`text`, with options as they are typed; `typed`: as for `option_of`."""
    return _NAMED.sub(lambda found: _NAME.sub(lambda name: option_of(name[0], typed), found[1]), text)


@contextmanager
def options_as_typed(typed: Mapping[str, str] = NO_OTHERS) -> Iterator[None]:
    """Raise errors of the block with their text `as_typed`."""
    try:
        yield
    except OutputError:
        raise
    except DuplicateKeyError as error:
        raise DelaystoreError(
            f"the message {error.message_id!r} already waits with the key {error.key!r}; use --on-key keep, replace or "
            "debounce, or cancel it first"
        ) from None
    except DelaystoreError as error:
        raise DelaystoreError(as_typed(str(error), typed)) from None
