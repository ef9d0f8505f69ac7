"""Headers and properties as text: JSON, with a tag for each type that JSON lacks, so that they come back exactly.

A tagged value is an object with one key that starts with `$`; a mapping that looks like one is wrapped in `$map`.
The text is pure ASCII, so no database's character set can change it.
"""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from delaystore.errors import InvalidMessageError
from delaystore.message import MAX_HEADER_DEPTH, NOTHING
from delaystore.strict_json import is_deeper

DEEPEST: Final = 3 * MAX_HEADER_DEPTH
"""Levels of JSON that are read: more than `encode_mapping` makes of the deepest headers, tags included."""
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_AS_THEY_ARE: Final = frozenset({str, int, bool, type(None)})
_UNTAG: Final[Mapping[str, Callable[[Any], Any]]] = {
    "$bytes": lambda text: b64decode(text, validate=True),
    "$datetime": lambda text: _datetime(text),
    "$decimal": Decimal,
    "$float": float,
    "$map": lambda pairs: {name: _untag(value) for name, value in pairs.items()},
}


class NestingError(ValueError):
    """Text is JSON with more than DEEPEST levels."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {DEEPEST} levels")


def encode_mapping(mapping: Mapping[str, Any]) -> str | None:
    """`mapping` as text; None for an empty one. Raises InvalidMessageError for a value without an encoding."""
    if not mapping:
        return None
    try:
        return _ENCODER.encode({name: _tag(value) for name, value in mapping.items()})
    except (TypeError, ValueError) as error:
        raise InvalidMessageError(f"a header cannot be stored: {error}") from None


def decode_mapping(text: str | None) -> Mapping[str, Any]:
    """The inverse of `encode_mapping`; raises ValueError, NestingError, for text it did not write."""
    if text is None:
        return NOTHING
    if type(text) is not str:
        raise ValueError(f"not text, but {type(text).__name__}")
    try:
        mapping = json.loads(text)
    except RecursionError:
        raise NestingError from None
    if type(mapping) is not dict:
        raise ValueError("not a JSON object")
    if text.count("{") + text.count("[") > DEEPEST and is_deeper(mapping, DEEPEST):
        raise NestingError  # Python 3.14 parses far more levels than encoders can follow
    return untagged(mapping) if '"$' in text else mapping


def untagged(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """A JSON object with the values that its tags stand for; raises ValueError for a tag that does not fit."""
    try:
        return {name: _untag(value) for name, value in mapping.items()}
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"a tagged value does not fit its tag: {error}") from None


def _tag(value: Any) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    if isinstance(value, datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, Mapping):
        tagged = {name: _tag(item) for name, item in value.items()}
        return {"$map": tagged} if len(tagged) == 1 and next(iter(tagged)).startswith("$") else tagged
    if isinstance(value, list):
        return [_tag(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no encoding")


def _datetime(text: str) -> datetime:
    """The inverse of `isoformat`; Python's own takes any character for the T."""
    if text[10:11] != "T":
        raise ValueError("a time without a T")
    return datetime.fromisoformat(text)


def _untag(value: Any) -> Any:
    if type(value) is list:
        return [_untag(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        (name, item), *_ = value.items()
        if name.startswith("$"):
            if name not in _UNTAG:
                raise ValueError(f"unknown tag {name}")
            return _UNTAG[name](item)
    return {name: _untag(item) for name, item in value.items()}
