"""How a topic exchange compares (https://www.rabbitmq.com/tutorials/tutorial-five-python)."""

from collections.abc import Sequence
from typing import Final

ONE_WORD: Final = "*"
ANY_WORDS: Final = "#"
"""None, one or more words."""
WILDCARDS: Final = frozenset({ONE_WORD, ANY_WORDS})


def matches(pattern: str, key: str) -> bool:
    """Whether a binding with `pattern` takes a message with the routing key `key`. Words are parted by dots."""
    return _matches(_words(pattern), _words(key))


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Which ends of the key the pattern read so far may stand at, word by word of the pattern."""
    reached = {0}
    for part in pattern:
        if part == ANY_WORDS:
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in (ONE_WORD, words[at])}
        if not reached:
            return False
    return len(words) in reached
