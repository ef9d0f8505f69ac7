"""JSON from outside, read strictly (RFC 8259): every reader of the text sees the same value, or refuses it."""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NoReturn

DEEPEST: Final = 100
"""Levels of arrays and objects that are read."""


class JsonError(ValueError):
    """Text that is refused. Its own text is a clause without a subject, as in "is no JSON: NaN is no number"."""


class AmbiguousJsonError(JsonError):
    """An object has one name twice."""


class DeepJsonError(JsonError):
    """Arrays and objects are nested to more than DEEPEST levels."""


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; bytes are UTF-8.

    Raises JsonError for anything else, for NaN, the infinities and numbers that are too large or too small for a
    float, half a surrogate pair, a name twice in one object, and more than DEEPEST levels.
    """
    try:
        written = text if isinstance(text, str) else text.decode()
        value = _DECODER.decode(written)
        if "\\u" in written or not written.isascii():
            json.dumps(value, ensure_ascii=False).encode()
    except JsonError:
        raise
    except UnicodeDecodeError:
        raise JsonError("is no UTF-8") from None
    except UnicodeEncodeError:
        raise JsonError("holds half a character: a surrogate, \\ud800 to \\udfff, without its pair") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise JsonError(f"is no JSON: {error}") from None
    if written.count("[") + written.count("{") > DEEPEST:
        check_depth(value)
    return value


def strict_decoder(parse_int: Callable[[str], Any] | None = None) -> json.JSONDecoder:
    """A decoder with the same rules for numbers and names; it leaves depth and surrogates to its caller."""
    return json.JSONDecoder(
        parse_int=parse_int or _whole, parse_float=_finite, parse_constant=_no_number, object_pairs_hook=_distinct
    )


def check_depth(value: Any, levels: int = DEEPEST) -> None:
    """Raise DeepJsonError for a value that is nested to more than `levels`."""
    if is_deeper(value, levels):
        raise _too_deep()


def is_deeper(value: Any, levels: int) -> bool:
    """Whether dicts and lists are nested in `value` to more than `levels`."""
    if type(value) not in (dict, list):
        return False
    level = [value]
    for _ in range(levels):
        items = chain.from_iterable(each.values() if type(each) is dict else each for each in level)
        level = [item for item in items if type(item) in (dict, list)]
        if not level:
            return False
    return True


def _too_deep() -> DeepJsonError:
    return DeepJsonError(f"is nested too deeply: more than {DEEPEST} levels")


def _distinct(pairs: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise AmbiguousJsonError(f"has the name {json.dumps(twice[:40])} twice in one object")
    return members


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        digits, most = len(text.lstrip("-")), sys.get_int_max_str_digits()
        raise JsonError(f"has a number of {digits:,} digits, which is more than {most:,}") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonError(f"has the number {text[:40]}, which is beyond what a number can hold")
    if not number and text.lower().partition("e")[0].strip("-0."):
        raise JsonError(f"has the number {text[:40]}, which would become 0")
    return number


def _no_number(text: str) -> NoReturn:
    raise JsonError(f"is no JSON: {text} is no number in JSON")


_DECODER: Final = strict_decoder()
