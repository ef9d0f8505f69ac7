"""The API's document, OpenAPI 3.1."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore import __version__
from delaystore.operations.json_requests import RequestFields
from delaystore.server.web.api import bulk, destinations, errors, loads, messages, schedules, state
from delaystore.server.web.api._fields import ApiCall
from delaystore.server.web.api.answers import ErrorFilterRequest, FilterRequest, ProblemAnswer
from delaystore.server.web.http import API, href

CALLS: Final = (
    *(*messages.CALLS, *bulk.CALLS, *destinations.CALLS, *loads.CALLS),
    *(*schedules.CALLS, *errors.CALLS, *state.CALLS),
)
_ABOUT: Final = (
    "Send, list and change waiting messages. Programs authenticate by a token, Authorization: Bearer TOKEN, or by a "
    "user's name and password. Times are in ISO 8601 with an offset; answers are in UTC."
)


async def show(request: Request) -> Response:
    """The document, for the address at which it was asked for."""
    return JSONResponse(document(href(request, API)))


def document(server: str, calls: Sequence[ApiCall] = CALLS) -> dict[str, Any]:
    """The document; `server`: where the API is."""
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        paths.setdefault(call.path, {})[call.method.lower()] = call.document()
    return {
        "openapi": "3.1.0",
        "info": {"title": "delaystore", "version": __version__, "description": _ABOUT},
        "servers": [{"url": server}],
        "security": [{"token": []}, {"password": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(calls),
            "responses": {
                "Problem": {
                    "description": "The call failed; `detail` says why.",
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _schemas(calls: Sequence[ApiCall]) -> dict[str, Any]:
    """Return the schemas of all structs. A request's field with a default may be left out, and is never null."""
    structs = [each.answer for each in calls] + [each.body for each in calls if each.body is not None]
    filters = (FilterRequest, ErrorFilterRequest)
    _, schemas = msgspec.json.schema_components(
        [ProblemAnswer, *filters, *structs], ref_template="#/components/schemas/{name}"
    )
    for struct in structs:
        if issubclass(struct, RequestFields):
            schema = schemas[struct.__name__]
            schema["additionalProperties"] = False
            schema["properties"] = {name: _without_null(each) for name, each in schema["properties"].items()}
            if "filter" in schema["properties"]:  # a request without a filter is answered like one with an empty filter
                schema["required"] = [*schema["required"], "filter"]
    for each in filters:
        schemas[each.__name__]["minProperties"] = 1
    return schemas


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "default" not in schema:
        return schema
    found = {name: value for name, value in schema.items() if name != "default"}
    others = [each for each in found.pop("anyOf", []) if each != {"type": "null"}]
    return {**found, **(others[0] if len(others) == 1 else {"anyOf": others} if others else {})}
