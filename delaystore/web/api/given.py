"""What a program gives with a call: a JSON object, checked field by field, each mistake told in one sentence."""

from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn, TypeVar

from starlette.requests import Request

from delaystore.errors import InvalidMessageError
from delaystore.strict_json import AmbiguousJsonError, JsonError, parse_json
from delaystore.times import parse_duration, parse_time
from delaystore.web.bodies import body_of
from delaystore.web.errors import Refusal

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a request."""
_Filter = TypeVar("_Filter")


class Given:
    """The fields of a JSON object. Each method raises Refusal for what cannot be."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def only(self, *names: str, nullable: str | None = None) -> "Given":
        """Itself, if it has no other fields, and null at most in `nullable`: null would mean what is left out."""
        for name, value in self._fields.items():
            if name not in names:
                known = f"known are {', '.join(names)}" if names else "this call takes no fields"
                _refuse(f"unknown field {name!r}; {known}")
            if value is None and name != nullable:
                _refuse(f"{name} is null; give it a value, or leave it out", 422)
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

    def required_number(self, name: str) -> float | None:
        """A number, or null, that must be given."""
        if name not in self._fields:
            _refuse(f"{name} is missing")
        return self.number(name)

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
            found = parse_time(text)
        except ValueError as error:
            _refuse(f"{name} {text[:80]!r} {error}")
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

    def filter(self, read: Callable[[Mapping[str, Any]], _Filter]) -> _Filter:
        """What `read` makes of the field `filter`. Refusal: it is missing, or no filter."""
        try:
            return read(self._fields.get("filter", {}))
        except InvalidMessageError as error:
            _refuse(str(error), 422)

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
        fields = parse_json(await body_of(request, LARGEST))
    except JsonError as error:
        _refuse(f"the body {error}", 422 if isinstance(error, AmbiguousJsonError) else 400)
    if not isinstance(fields, dict):
        _refuse("the body must be a JSON object")
    return Given(fields)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidMessageError("body holds half a surrogate pair, which UTF-8 cannot") from None


def _refuse(sentence: str, status: int = 400) -> NoReturn:
    raise Refusal(status, f"{sentence[0].upper()}{sentence[1:]}.")
