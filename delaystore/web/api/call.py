"""One call of the API, as a route and as a part of the document."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delaystore.json_requests import RequestFields
from delaystore.web.http import API

Schema = Mapping[str, Any]
TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
PROBLEMS: Final = (400, 401, 403, 429, 503)
"""The statuses that every call may answer with."""
_OF_BODIES: Final = (408, 413, 415, 422)
"""Those of every call that takes a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call. `path`: below the API's own, as in OpenAPI; the parameter at its end may hold slashes.

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
        head, brace, parameter = self.path.partition("{")
        path = f"{head}{{{parameter.removesuffix('}')}:path}}" if parameter.endswith("}") else self.path
        route = Route(API + (path if brace else self.path), self.do, methods=[self.method])
        route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)  # an id may hold line breaks
        return route

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
