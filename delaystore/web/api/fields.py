"""Requests of the API as structs: what programs may give with each call, and how it is read."""

from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from delaystore.errors import InvalidMessageError
from delaystore.json_requests import (
    DelayField,
    Fields,
    NullFieldError,
    RequestFieldError,
    RequestFields,
    TimeField,
    check_either,
    delay_in,
    read_fields,
    time_in,
)
from delaystore.keys import OnKey
from delaystore.message import PROPERTY_TYPES
from delaystore.strict_json import AmbiguousJsonError, JsonError, parse_json
from delaystore.web.errors import Refusal
from delaystore.web.forms import body_of

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a request."""
Filter = TypeVar("Filter")


def _filter(name: str) -> Any:
    return msgspec.Meta(extra_json_schema={"$ref": f"#/components/schemas/{name}"})


def _one_of(*names: str) -> Any:
    return msgspec.Meta(extra_json_schema={"enum": names})


class NoFields(RequestFields, frozen=True):
    """A request that says nothing: {}."""


class When(RequestFields, frozen=True, kw_only=True):
    """A new due time: one of both."""

    delay: DelayField | None = None
    at: TimeField | None = None

    def when(self) -> dict[str, Any]:
        """Return the delay and the time, one of which is None. Raises InvalidMessageError, ConfigurationError."""
        check_either(self.delay, self.at)
        delay: timedelta | float | None = None if self.delay is None else delay_in(self.delay, "delay")
        at: datetime | None = None if self.at is None else time_in(self.at, "at")
        return {"delay": delay, "at": at}


class NewMessage(When, frozen=True, kw_only=True):
    """A message to be stored."""

    destination: str
    body: Annotated[str, msgspec.Meta(description="As text, sent in UTF-8; or give body_base64.")] | None = None
    body_base64: str | None = None
    headers: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    message_id: (
        Annotated[
            str,
            msgspec.Meta(description="Your own: where it waits already nothing is stored, and `stored` is false."),
        ]
        | None
    ) = None
    key: str | None = None
    on_key: Annotated[str, _one_of(*OnKey)] | None = None
    max_wait: DelayField | None = None

    def content(self) -> bytes:
        """Return the body; without one it is empty. Raises Refusal."""
        if self.body is not None and self.body_base64 is not None:
            raise refusal("give one of body and body_base64, not both")
        if self.body_base64 is None:
            return (self.body or "").encode()
        try:
            return b64decode(self.body_base64, validate=True)
        except ValueError:
            raise refusal("body_base64 is no base64") from None

    def properties_read(self) -> dict[str, Any]:
        """Return the properties, times as such. Raises InvalidMessageError."""
        kinds = {name: kind for name, kind in PROPERTY_TYPES.items() if kind is not str and kind is not int}
        return {
            name: time_in(value, name) if name in kinds and isinstance(value, str) else value
            for name, value in self.properties.items()
        }


class Preview(RequestFields, frozen=True, kw_only=True):
    """Which messages an operation would change."""

    filter: Annotated[Any, _filter("Filter")] = {}


class NewOperation(When, frozen=True, kw_only=True):
    """What to do with which messages."""

    kind: Annotated[str, _one_of("cancel", "reschedule")]
    filter: Annotated[Any, _filter("Filter")] = {}


class Destination(RequestFields, frozen=True, kw_only=True):
    """A destination by its name."""

    destination: str


class Pause(Destination, frozen=True, kw_only=True):
    """A destination, and until when it is paused."""

    until: TimeField | None = None


class Limit(Destination, frozen=True, kw_only=True):
    """A destination, and its limit in messages per second; null: no limit."""

    max_rate: float | None


class Discard(RequestFields, frozen=True, kw_only=True):
    """Which failed messages are discarded, and how many at most."""

    filter: Annotated[Any, _filter("ErrorFilter")] = {}
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Replay(Discard, frozen=True, kw_only=True):
    """Which failed messages are sent again, how many at most, and to which destination instead of their own."""

    to: str | None = None


async def fields_of(request: Request, kind: type[Fields]) -> Fields:
    """Return the JSON object in the body as `kind`. Raises Refusal: it is too large, or none, or has other fields."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":  # another site's page cannot send this without asking
        raise Refusal(415, "Send JSON, with the header Content-Type: application/json.")
    try:
        given = parse_json(await body_of(request, LARGEST))
    except JsonError as error:
        raise refusal(f"the body {error}", 422 if isinstance(error, AmbiguousJsonError) else 400) from None
    if not isinstance(given, dict):
        raise refusal("the body must be a JSON object")
    try:
        return read_fields(kind, given)
    except RequestFieldError as error:
        raise refusal(str(error), 422 if isinstance(error, NullFieldError) else 400) from None


def filter_in(given: Any, read: Callable[[Mapping[str, Any]], Filter]) -> Filter:
    """Return the filter that `read` makes of a field. Raises Refusal: it is no filter, or an empty one."""
    try:
        return read(given)
    except InvalidMessageError as error:
        raise refusal(str(error), 422) from None


def refusal(sentence: str, status: int = 400) -> Refusal:
    """Return the answer to a request that is not understood."""
    return Refusal(status, f"{sentence[0].upper()}{sentence[1:]}.")
