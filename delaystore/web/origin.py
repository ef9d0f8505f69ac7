"""From where a request comes: this machine or another, our own page or somebody else's."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

_OWN = frozenset({"same-origin", "none"})
"""What a browser says of requests that our own page, or the user, made."""
_PROXIES = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
"""Headers that proxies add, beside X-Forwarded-..."""


def is_loopback(host: str | None) -> bool:
    """Whether `host`, a name or an address, is this machine's own and nobody else's."""
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
