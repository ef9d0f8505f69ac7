"""Requests of the API as structs: the values that programs may give with each call, and how they are read."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delaystore.errors import InvalidMessageError
from delaystore.message import PROPERTY_TYPES, OnKey
from delaystore.operations.json_requests import (
    DelayField,
    FieldsT,
    NullFieldError,
    RequestFieldError,
    RequestFields,
    ShiftField,
    TimeField,
    ZoneField,
    check_either,
    delay_in,
    new_due_time_in,
    read_fields,
    time_in,
)
from delaystore.schedules import CatchUp, IfWaiting
from delaystore.server.web.errors import Refusal
from delaystore.server.web.forms import body_of
from delaystore.server.web.http import API
from delaystore.stores.documents import body_in
from delaystore.text import AmbiguousJsonError, JsonError, parse_json

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a request."""
FilterT = TypeVar("FilterT")


def _named(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _filter(name: str) -> Any:
    return msgspec.Meta(extra_json_schema=_named(name))


def _one_of(*names: str) -> Any:
    return msgspec.Meta(extra_json_schema={"enum": names})


class NoFields(RequestFields, frozen=True):
    """A request that says nothing: {}."""


class NewDueTime(RequestFields, frozen=True, kw_only=True):
    """A new due time, or by how much the due time moves: one of `delay`, `at` and `by`."""

    delay: DelayField | None = None
    at: TimeField | None = None
    by: ShiftField | None = None
    time_zone: ZoneField | None = None

    def when(self) -> dict[str, Any]:
        """Return the arguments of a reschedule. Raises InvalidMessageError, ConfigurationError."""
        return new_due_time_in(self.delay, self.at, self.by, self.time_zone)


class NewMessage(RequestFields, frozen=True, kw_only=True):
    """A message to be stored."""

    destination: str
    delay: DelayField | None = None
    at: TimeField | None = None
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
    not_after: TimeField | None = None
    max_late: DelayField | None = None

    def times(self) -> dict[str, Any]:
        """Return the due time and the latest delivery, as arguments of `send`. Raises InvalidMessageError,
        ConfigurationError.
        """
        check_either(self.delay, self.at)
        return {
            "delay": None if self.delay is None else delay_in(self.delay, "delay"),
            "at": None if self.at is None else time_in(self.at, "at"),
            "not_after": None if self.not_after is None else time_in(self.not_after, "not_after"),
            "max_late": None if self.max_late is None else delay_in(self.max_late, "max_late"),
        }

    def content(self) -> bytes:
        """Return the body; without one it is empty. Raises InvalidMessageError."""
        return body_in(self.body, self.body_base64) or b""

    def properties_read(self) -> dict[str, Any]:
        """Return the properties, times as such. Raises InvalidMessageError."""
        kinds = {name: kind for name, kind in PROPERTY_TYPES.items() if kind is not str and kind is not int}
        return {
            name: time_in(value, name) if name in kinds and isinstance(value, str) else value
            for name, value in self.properties.items()
        }


class PreviewFields(NewDueTime, frozen=True, kw_only=True):
    """Which messages an operation would change; of a reschedule with the new due time."""

    filter: Annotated[Any, _filter("Filter")] = {}


class NewOperation(NewDueTime, frozen=True, kw_only=True):
    """What to do with which messages."""

    kind: Annotated[str, _one_of("cancel", "reschedule")]
    filter: Annotated[Any, _filter("Filter")] = {}


class DestinationFields(RequestFields, frozen=True, kw_only=True):
    """A destination by its name."""

    destination: str


class Pause(DestinationFields, frozen=True, kw_only=True):
    """A destination, and until when it is paused."""

    until: TimeField | None = None


class LoadFields(RequestFields, frozen=True, kw_only=True):
    """A load by its id."""

    load_id: str


class PauseLoad(LoadFields, frozen=True, kw_only=True):
    """A load, and until when it is paused."""

    until: TimeField | None = None


class Limit(DestinationFields, frozen=True, kw_only=True):
    """A destination, and its limit in messages per second; null: no limit."""

    max_rate: float | None


class Discard(RequestFields, frozen=True, kw_only=True):
    """Which failed messages are discarded, and how many at most."""

    filter: Annotated[Any, _filter("ErrorFilter")] = {}
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Replay(Discard, frozen=True, kw_only=True):
    """Which failed messages are sent again, how many at most, and to which destination instead of their own."""

    to: str | None = None


class NewSchedule(RequestFields, frozen=True, kw_only=True):
    """The definition of a schedule: one of `cron` and `every`; one of `body`, `body_base64` and `json`."""

    destination: str
    body: str | None = None
    body_base64: str | None = None
    json: Any = None
    cron: str | None = None
    every: DelayField | None = None
    at: str | None = None
    zone: str | None = None
    both_days: bool | None = None
    headers: dict[str, Any] | None = None
    properties: dict[str, Any] | None = None
    starts: TimeField | None = None
    ends: TimeField | None = None
    max_runs: int | None = None
    catch_up: Annotated[str, _one_of(*CatchUp)] | None = None
    max_late: DelayField | None = None
    jitter: DelayField | None = None
    if_waiting: Annotated[str, _one_of(*IfWaiting)] | None = None


class NamedSchedule(NewSchedule, frozen=True, kw_only=True):
    """The definition of a schedule, with its name."""

    name: str


class ApplySchedules(RequestFields, frozen=True, kw_only=True):
    """All schedules whose names begin with `prefix`."""

    prefix: str
    schedules: Annotated[list[dict[str, Any]], msgspec.Meta(extra_json_schema={"items": _named("NamedSchedule")})]
    dry_run: bool | None = None


class Skip(RequestFields, frozen=True, kw_only=True):
    """The time of an occurrence."""

    at: TimeField


class Backfill(RequestFields, frozen=True, kw_only=True):
    """The first and the last time of occurrences."""

    since: TimeField
    until: TimeField


async def fields_of(request: Request, kind: type[FieldsT]) -> FieldsT:
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


def ends_in_id(request: Request) -> bool:
    """Whether the last part of the address is the end of an id, as its slash is encoded, and no word of a call."""
    raw: bytes = request.scope.get("raw_path", b"")
    return b"%2f" in raw.rpartition(b"/")[2].lower()


def filter_in(given: Any, read: Callable[[Mapping[str, Any]], FilterT]) -> FilterT:
    """Return the filter that `read` makes of a field. Raises Refusal: it is no filter, or an empty one."""
    try:
        return read(given)
    except InvalidMessageError as error:
        raise refusal(str(error), 422) from None


def refusal(sentence: str, status: int = 400) -> Refusal:
    """Return the answer to a request that is not understood."""
    return Refusal(status, f"{sentence[0].upper()}{sentence[1:]}.")


Schema = Mapping[str, Any]
TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
PROBLEMS: Final = (400, 401, 403, 429, 503)
"""The statuses that every call may answer with."""
_OF_BODIES: Final = (408, 413, 415, 422)
"""Those of every call that takes a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One call. `path`: below the API's own, as in OpenAPI; its parameter may hold slashes.

    `query`: the parameters, each with its schema. `body`, `answer`: the structs of the request, and of the answer.
    `status`: all statuses of that answer. `refusals`: further statuses, with a problem document.
    """

    method: str
    path: str
    name: str
    summary: str
    do: Callable[[Request], Awaitable[Response]]
    answer: type[msgspec.Struct]
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: type[RequestFields] | None = None
    status: Sequence[int] = (200,)
    refusals: Sequence[int] = ()

    @property
    def route(self) -> Route:
        """For Starlette."""
        route = Route(API + self.path.replace("}", ":path}"), self._checked, methods=[self.method])
        route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)  # an id may hold line breaks
        return route

    async def _checked(self, request: Request) -> Response:
        """Answer the request. Raises Refusal for a parameter that this call has not: a filter would match more."""
        unknown = sorted(set(request.query_params) - set(self.query))
        if unknown:
            known = f"it has {', '.join(self.query)}" if self.query else "it has none"
            raise refusal(f"this call has no parameter {unknown[0][:80]!r}; {known}")
        return await self.do(request)

    def document(self) -> dict[str, Any]:
        """For OpenAPI: the operation object."""
        refusals = {*PROBLEMS, *self.refusals, *(() if self.body is None else _OF_BODIES)}
        found: dict[str, Any] = {
            "operationId": self.name,
            "summary": self.summary,
            "parameters": [*self._path_parameters(), *map(_query_parameter, self.query.items())],
            "responses": {
                **{str(status): _content("Done.", self.answer) for status in self.status},
                **{
                    str(status): {"$ref": "#/components/responses/Problem"}
                    for status in sorted(refusals - set(self.status))
                },
            },
        }
        if self.body is not None:
            found["requestBody"] = {"required": True, "content": _json(self.body)}
        return found

    def _path_parameters(self) -> list[dict[str, Any]]:
        names = [part.partition("}")[0] for part in self.path.split("{")[1:]]
        return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameter(named: tuple[str, Schema]) -> dict[str, Any]:
    name, schema = named
    described = {key: value for key, value in schema.items() if key != "description"}
    more = {"style": "form", "explode": True} if schema.get("type") == "array" else {}
    found = {"name": name, "in": "query", "schema": described, **more}
    return {**found, "description": schema["description"]} if "description" in schema else found


def _content(description: str, answer: type[msgspec.Struct]) -> dict[str, Any]:
    return {"description": description, "content": _json(answer)}


def _json(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{struct.__name__}"}}}
