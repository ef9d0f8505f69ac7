"""Requests and answers: addresses below a prefix, where a request comes from, signed forms, security headers."""

import hmac
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    """Whether every client may have it: styles and scripts, which hold no data."""
    return path_of(scope).startswith(f"{STATIC}/")


def href(request: HTTPConnection, path: str, query: Mapping[str, Any] | None = None) -> str:
    """The address of a path within the application; None values in `query` are left out."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return prefix_of(request.scope) + path + (f"?{urlencode(given, doseq=True)}" if given else "")


_OWN = frozenset({"same-origin", "none"})
"""A browser's value for requests that our own page, or the user, made."""
_PROXIES = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
"""Headers that proxies add, beside X-Forwarded-..."""


def is_loopback(host: str | None) -> bool:
    """Whether `host`, a name or an address, is only this machine's."""
    if host is None:
        return False
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost":
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # of a socket that listens to IPv6 and IPv4
    return address.is_loopback if mapped is None else mapped.is_loopback


def why_not_local(request: HTTPConnection) -> str | None:
    """Why the request does not come from this machine, by its own name; None: it does.

    The name matters: a page elsewhere can have its own host's name lead to 127.0.0.1 (DNS rebinding).
    """
    if request.client is None or not is_loopback(request.client.host):
        return "it comes from another machine"
    if any(name.startswith("x-forwarded") or name in _PROXIES for name in request.headers):
        return "it comes through a proxy"
    if not is_loopback(_host_of(request)):
        return "it is for another host than localhost"
    return None


def why_not_own(request: HTTPConnection) -> str | None:
    """Why a change was not asked for by a page of this host, or by a program; None: it was."""
    if request.headers.get("sec-fetch-site", "none") not in _OWN:
        return "another site's page asked for it"
    origin = request.headers.get("origin")
    if origin is None:
        return None
    host, forwarded = request.headers.get("host", ""), request.headers.get("x-forwarded-host", "")
    if origin.partition("://")[2].lower() in {host.lower(), forwarded.lower()} - {""}:
        return None
    return (
        f"a page of {origin} asked for it, and this one is at {forwarded or host}; a proxy in front must pass on the "
        "header Host, or set X-Forwarded-Host"
    )


def _host_of(request: HTTPConnection) -> str | None:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname
    except ValueError:  # half a pair of brackets
        return None


POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
NOT_KEPT: Final = "no-store"
_UNCHANGING: Final = "public, max-age=31536000, immutable"
"""Of static files: their URLs change with their content."""


class Hardening:
    """Puts HEADERS on each answer of `app`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                is_static = "v=" in scope.get("query_string", b"").decode("latin-1") and "etag" in headers
                headers["Cache-Control"] = _UNCHANGING if is_static else NOT_KEPT
            await send(message)

        await self._app(scope, receive, hardened)


_NONCE_BYTES: Final = 18


def new_nonce() -> str:
    """Text that cannot be guessed."""
    return secrets.token_urlsafe(_NONCE_BYTES)


class Signer:
    """Signs and verifies with `secret`; None: with one of its own, which ends with the process."""

    def __init__(self, secret: str | None = None) -> None:
        self._key = secrets.token_bytes(32) if secret is None else secret.encode()

    def csrf(self, nonce: str, user: str) -> str:
        """The token for forms of `user`, whose browser has the cookie `nonce`."""
        return self._signature("csrf", nonce, user)

    def verifies_csrf(self, token: str, nonce: str | None, user: str) -> bool:
        """Whether `token` matches `csrf`."""
        expected = self.csrf(nonce or new_nonce(), user)
        return hmac.compare_digest(expected.encode(), token.encode(errors="replace"))

    def sealed(self, what: str, value: Any) -> str:
        """`value`, of JSON, as text for a cookie; `what`: its purpose."""
        text = urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
        return f"{text}.{self._signature(what, text)}"

    def opened(self, what: str, sealed: str) -> Any:
        """The inverse of `sealed`; None: it was not made here."""
        text, _, signature = sealed.partition(".")
        if not hmac.compare_digest(self._signature(what, text).encode(), signature.encode(errors="replace")):
            return None
        return json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))

    def _signature(self, *parts: str) -> str:
        text = "\0".join(parts).encode(errors="surrogatepass")
        return urlsafe_b64encode(hmac.digest(self._key, text, "sha256")).decode().rstrip("=")
