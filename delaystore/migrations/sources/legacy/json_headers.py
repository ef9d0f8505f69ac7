"""Headers as JSON text, as NServiceBus' SQL and NHibernate persistence write them."""

import json
from collections.abc import Mapping
from typing import Any

from delaystore.errors import InvalidMessageError


def parse_json_headers(value: Any) -> dict[str, str | None]:
    """The headers that `value` holds: JSON text, or what a driver made of it; None and empty text are no headers.

    Raises InvalidMessageError for what is no object of text.
    """
    if value is None or value == "":
        return {}
    headers = value if isinstance(value, Mapping) else _loaded(value)
    if not isinstance(headers, dict):
        raise InvalidMessageError(f"its headers are a JSON {_kind(headers)}, not an object")
    for name, text in headers.items():
        if not isinstance(text, str | None):
            raise InvalidMessageError(f"its header {name!r} is a JSON {_kind(text)}, not text")
    return headers


def _loaded(value: Any) -> Any:
    try:
        return json.loads(value)
    except RecursionError:
        raise InvalidMessageError("its headers are nested too deeply to be headers") from None
    except (ValueError, TypeError) as error:
        raise InvalidMessageError(f"its headers are no JSON: {error}") from None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean"}
    return kinds.get(type(value), "number")
