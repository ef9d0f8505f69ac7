"""JSON requests of programs, read strictly into structs of msgspec: those of the web API and of control queues."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import NoneType
from typing import Annotated, Any, Final, TypeVar, get_args

import msgspec

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.text import is_deeper, parse_duration, parse_instant, parse_shift

DelayField = Annotated[float | str, msgspec.Meta(description="Seconds, or text such as 90s, 2h30m, 3d.")]
TimeField = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
ShiftField = Annotated[
    float | str,
    msgspec.Meta(description="Seconds, or text such as 7d, by which the due time moves; -2h: to an earlier time."),
]
ZoneField = Annotated[
    str, msgspec.Meta(description="Time zone of `by`, such as Europe/Berlin; left out: a day is 24 hours.")
]
EITHER: Final = "give exactly one of delay (seconds, or text such as 2h30m) and at (a time with its offset)"
ONE_OF_THREE: Final = "give exactly one of delay, at and by"
_WORDS: Final = {
    "str": "text",
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "object": "an object",
}
_SHOWN: Final = 80
"""Characters of a value that an error repeats."""
_DEEPEST: Final = 20
"""Levels of nested values that an error repeats: not all that can be read can be written further down the stack."""


class RequestFields(msgspec.Struct, frozen=True):
    """The fields of one kind of request. A field without a default is required; it may be null if its type says so."""


FieldsT = TypeVar("FieldsT", bound=RequestFields)


class RequestFieldError(Exception):
    """A field that is unknown, missing, null, or of the wrong type; its text is one clause."""


class NullFieldError(RequestFieldError):
    """A field is null, which could mean the same as leaving it out, or not."""


class FieldTypeError(RequestFieldError):
    """The field `name` is of the wrong type. `wanted`: the required type."""

    def __init__(self, name: str, wanted: str, given: object) -> None:
        super().__init__(f"{name} must be {wanted}, not {shown(given)}")
        self.name = name


def read_fields(kind: type[FieldsT], given: Mapping[str, Any]) -> FieldsT:
    """Return the fields of a JSON object. Raises RequestFieldError."""
    known = {each.name: each for each in msgspec.structs.fields(kind)}
    for name, value in given.items():
        if name not in known:
            names = f"known are {', '.join(known)}" if known else "this call takes no fields"
            raise RequestFieldError(f"unknown field {cut(name, _SHOWN)!r}; {names}")
        if value is None and not (known[name].required and NoneType in get_args(known[name].type)):
            raise NullFieldError(f"{name} is null; give it a value, or leave it out")
    for name, field in known.items():
        if field.required and name not in given:
            raise RequestFieldError(f"{name} is missing")
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`").partition(".")[0].partition("[")[0]
        raise FieldTypeError(name, _wanted(reason), given.get(name)) from None


def delay_in(given: float | str, name: str) -> timedelta | float:
    """Return the delay of a DelayField: seconds as they are. Raises ConfigurationError, naming the field."""
    return parse_duration(given, name) if isinstance(given, str) else given


def time_in(given: str, name: str) -> datetime:
    """Return the time of a TimeField, with its offset. Raises InvalidMessageError, naming the field."""
    try:
        return parse_instant(given, name)
    except ConfigurationError as error:
        raise InvalidMessageError(str(error)) from None


def new_due_time_in(
    delay: float | str | None, at: str | None, by: float | str | None, time_zone: str | None
) -> dict[str, Any]:
    """Return the fields of a new due time as arguments of a reschedule.

    Raises InvalidMessageError, ConfigurationError.
    """
    return {
        "delay": None if delay is None else delay_in(delay, "delay"),
        "at": None if at is None else time_in(at, "at"),
        "by": parse_shift(by, "by") if isinstance(by, str) else by,
        "time_zone": time_zone,
    }


def check_either(delay: object, at: object) -> None:
    """Raise InvalidMessageError unless exactly one of a delay and a time is given."""
    if (delay is None) is (at is None):
        raise InvalidMessageError(EITHER)


def _wanted(reason: str) -> str:
    """Return what msgspec expects in the words of JSON, as `a number or text`."""
    types, _, bound = reason.removeprefix("Expected `").partition("`")
    words = " or ".join(_WORDS.get(each, each) for each in types.split(" | ") if each != "null")
    return words + bound.partition(", got ")[0].replace(">=", "from")


def shown(value: object) -> str:
    """Return a value for an error: as JSON, cut off."""
    if isinstance(value, dict | list) and is_deeper(value, _DEEPEST):
        return "an object" if isinstance(value, dict) else "an array"
    return cut(json.dumps(value), _SHOWN)


def cut(text: str, most: int) -> str:
    """Return the text, or its first `most` characters."""
    return text if len(text) <= most else f"{text[:most]}..."
