"""Headers as people write them."""

import json
import math
from typing import Any, NoReturn

from delaystore.errors import ConfigurationError


def parse_headers(text: str, option: str) -> dict[str, Any]:
    """A JSON object; ConfigurationError naming `option` for anything else, NaN and Infinity among it."""
    try:
        headers = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        json.dumps(headers, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{option} has half a character: a \\ud800 to \\udfff without its pair") from None
    except ValueError as error:
        raise ConfigurationError(f"{option} is no JSON: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{option} is nested too deeply") from None
    if not isinstance(headers, dict):
        raise ConfigurationError(f'{option} must be an object, as in {{"attempt": 1}}')
    return headers


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number there; leave it out, or write it as text")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond what a number can hold")
    return number
