"""The API's document, OpenAPI 3.1."""

from collections.abc import Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore import __version__
from delaystore.web.api import bulk, destinations, errors, messages, state
from delaystore.web.api.call import Call
from delaystore.web.api.schemas import SCHEMAS, ref
from delaystore.web.paths import API, href

CALLS: Final = (*messages.CALLS, *bulk.CALLS, *destinations.CALLS, *errors.CALLS, *state.CALLS)
_ABOUT: Final = (
    "Messages that wait: send them, see them, change them. Programs send a token, Authorization: Bearer TOKEN, or a "
    "user's name and password. Times are in ISO 8601 with their offset; answers are UTC."
)


async def show(request: Request) -> Response:
    """The document, for the address at which it was asked for."""
    return JSONResponse(document(href(request, API)))


def document(server: str, calls: Iterable[Call] = CALLS) -> dict[str, Any]:
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
            "schemas": {**SCHEMAS, **errors.SCHEMAS},
            "responses": {
                "Problem": {
                    "description": "It was not done; `detail` says why.",
                    "content": {"application/problem+json": {"schema": ref("Problem")}},
                }
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }
