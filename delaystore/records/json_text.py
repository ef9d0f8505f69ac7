"""Values of records as JSON that any parser takes (RFC 8259)."""

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from delaystore.errors import InvalidMessageError


def json_text(value: Any) -> str:
    """The JSON text of a value of JSON's types or Parquet's, as a bulk load writes bodies.

    Bytes are base64, times ISO 8601 (instants in UTC), durations seconds, decimals numbers, UUIDs text, and NaN and the
    infinities, which JSON does not have, the strings "NaN", "Infinity" and "-Infinity". Names of other types are
    written as the values would be. Raises InvalidMessageError for any other value, and for what is nested too deeply.
    """
    try:
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError):  # it holds what JSON does not have
            return _text(value)
    except RecursionError:
        raise InvalidMessageError("its body is nested too deeply") from None


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool | int | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else _non_finite(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, timedelta):
        return repr(value.total_seconds())
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_name(name)}:{_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(_written(value))


def _name(name: Any) -> str:
    text = _text(name)
    return text if text.startswith('"') else json.dumps(text)


def _written(value: Any) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return _in_utc(value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise InvalidMessageError(f"its body holds a {type(value).__name__}, which JSON cannot")


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError:  # at the ends of what Python has
        return value


def _non_finite(value: float) -> str:
    if math.isnan(value):
        return '"NaN"'
    return '"Infinity"' if value > 0 else '"-Infinity"'
