"""What a program gives with a call: a JSON object, checked field by field, each mistake told in one sentence."""

import json
import math
from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from starlette.requests import Request

from delaystore.errors import InvalidMessageError
from delaystore.filters import MessageFilter
from delaystore.times import parse_duration
from delaystore.web.bodies import body_of
from delaystore.web.errors import Refusal

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a request."""


class Given:
    """The fields of a JSON object. Each method raises Refusal for what cannot be."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def only(self, *names: str) -> "Given":
        """Itself, if it has no other fields: what is misspelt would be left out in silence."""
        for name in self._fields:
            if name not in names:
                _refuse(f"unknown field {name!r}; known are {', '.join(names)}")
        return self

    def text(self, name: str) -> str | None:
        """Text; None: not given."""
        found: str | None = self._typed(name, str, "text")
        return found

    def required_text(self, name: str) -> str:
        """Text that must be given."""
        found = self.text(name)
        if found is None:
            _refuse(f"{name} is missing")
        return found

    def required(self, name: str, hint: str) -> None:
        """Raise Refusal where it is not given; `hint`: what else to write."""
        if name not in self._fields:
            _refuse(f"{name} is missing; {hint}")

    def number(self, name: str) -> float | None:
        """A number; None: not given, or null."""
        found = self._fields.get(name)
        if found is not None and (isinstance(found, bool) or not isinstance(found, int | float)):
            _refuse(f"{name} must be a number, not {found!r}")
        return found

    def objects(self, name: str) -> Mapping[str, Any]:
        """An object; empty: not given."""
        found: Mapping[str, Any] | None = self._typed(name, dict, "an object")
        return found or {}

    def time(self, name: str) -> datetime | None:
        """A time; None: not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            _refuse(f"{name} {text!r} is no time in ISO 8601; write 2027-01-31T09:00:00+01:00")
        if found.tzinfo is None:
            _refuse(f"{name} {text!r} has no offset; write {text}Z for UTC")
        return found

    def duration(self, name: str) -> timedelta | float | None:
        """Seconds, or text such as 2h30m; None: not given."""
        found = self._fields.get(name)
        return parse_duration(found, name) if isinstance(found, str) else self.number(name)

    def when(self) -> dict[str, Any]:
        """Either `delay` or `at`, for calls that take both."""
        found = {"delay": self.duration("delay"), "at": self.time("at")}
        if (found["delay"] is None) is (found["at"] is None):
            _refuse("give exactly one of delay (seconds, or text such as 2h30m) and at (a time with its offset)")
        return found

    def filter(self, name: str = "filter") -> MessageFilter:
        """A filter, which must be given: what is forgotten would mean all that waits."""
        self.required(name, "{} means all that waits")
        return MessageFilter.from_dict(self.objects(name))

    def body(self) -> bytes:
        """The body of a message: `body`, text, or `body_base64`; neither: empty."""
        text, encoded = self.text("body"), self.text("body_base64")
        if text is not None and encoded is not None:
            _refuse("give one of body and body_base64, not both")
        if encoded is None:
            return _utf8(text or "")
        try:
            return b64decode(encoded, validate=True)
        except ValueError:
            _refuse("body_base64 is no base64")

    def _typed(self, name: str, kind: type, called: str) -> Any:
        found = self._fields.get(name)
        if found is not None and type(found) is not kind:
            _refuse(f"{name} must be {called}, not {found!r}"[:200])
        return found


async def given_with(request: Request) -> Given:
    """The JSON object in the body. Raises Refusal: it is too large, or none."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":  # another site's page cannot send this without asking
        raise Refusal(415, "Send JSON, with the header Content-Type: application/json.")
    try:
        fields = json.loads(await body_of(request, LARGEST), parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        _refuse(f"the body is no JSON: {error}")
    if not isinstance(fields, dict):
        _refuse("the body must be a JSON object")
    return Given(fields)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidMessageError("body holds half a surrogate pair, which UTF-8 cannot") from None


def _finite(text: str) -> float:
    found = float(text)
    return found if math.isfinite(found) else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number there")


def _refuse(sentence: str) -> NoReturn:
    raise Refusal(400, f"{sentence[0].upper()}{sentence[1:]}.")
