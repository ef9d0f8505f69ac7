"""Where the page's own paths lead, under whatever prefix it is mounted."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import HTTPConnection
from starlette.types import Scope

API: Final = "/api/v1"
STATIC: Final = "/static"
_PREFIX: Final = "delaystore.prefix"
"""The key of an ASGI scope under which `keep_prefix` notes it."""


def keep_prefix(scope: Scope) -> None:
    """Note the application's own prefix: where it mounts something, the scope's path grows, also for error pages."""
    scope[_PREFIX] = scope.get("root_path", "")


def prefix_of(scope: Scope) -> str:
    """The prefix under which the application is mounted, as addresses have it; empty: it is at the root."""
    root: str = scope.get(_PREFIX, scope.get("root_path", ""))
    return quote(root.rstrip("/"))


def path_of(scope: Scope) -> str:
    """The path within the application, as its routes see it."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if path == root:
        return "/"
    return path[len(root) :] if root and path.startswith(f"{root.rstrip('/')}/") else path


def is_api(request: HTTPConnection) -> bool:
    """Whether a program asks."""
    return path_of(request.scope).startswith("/api/")


def is_public(scope: Scope) -> bool:
    """Whether anybody may have it: styles and scripts, which tell nothing."""
    return path_of(scope).startswith(f"{STATIC}/")


def href(request: HTTPConnection, path: str, query: Mapping[str, Any] | None = None) -> str:
    """The address of a path within the application; what is None in `query` is left out."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return prefix_of(request.scope) + path + (f"?{urlencode(given, doseq=True)}" if given else "")
