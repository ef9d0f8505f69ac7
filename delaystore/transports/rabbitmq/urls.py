"""AMQP URLs: the hosts that they list, and their query. No text repeats what might be a secret."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from delaystore.errors import ConfigurationError

_AUTHORITY: Final = re.compile(r"(?P<scheme>[^:/?#]*://)(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_LOGIN_AMONG_HOSTS: Final = re.compile("@.*,", re.DOTALL)
"""In what stands before the last `@`: a second login, or a password with an `@` and a comma."""


def urls_of_hosts(url: str) -> Sequence[str]:
    """`amqp[s]://[login@]host[:port],host[:port]...` as a URL for each host. Raises ConfigurationError."""
    found = _AUTHORITY.fullmatch(url)
    if found is None or "," not in found["authority"]:
        return [url]
    login, mark, hosts = found["authority"].rpartition("@")
    if _LOGIN_AMONG_HOSTS.search(login):
        raise ConfigurationError(
            "the AMQP URL has an '@' among its hosts; give user and password once, before the first host, and "
            "percent-encode an '@' in the password as %40"
        )
    listed = hosts.split(",")
    if any(host.count(":") > 1 and not host.startswith("[") for host in listed):
        raise ConfigurationError("the AMQP URL has an address of IPv6 without brackets; write [::1]:5672")
    if any(not host.partition(":")[0] for host in listed):
        raise ConfigurationError("the AMQP URL lists an empty host; write host:port,host:port without gaps")
    return [f"{found['scheme']}{login}{mark}{host}{found['rest']}" for host in dict.fromkeys(listed)]


def split(url: str) -> SplitResult:
    """The parts of a URL that names one host. Raises ConfigurationError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        port = 0  # which no broker listens on
    if port == 0 or any(letter.isspace() for letter in parts.hostname or ""):
        raise ConfigurationError(
            "the AMQP URL cannot be read; check host and port, and percent-encode special characters in the password"
        )
    if parts.scheme not in ("amqp", "amqps") or "://" not in url:
        raise ConfigurationError("an AMQP URL starts with amqp:// or amqps://, as in amqp://localhost")
    if parts.fragment:
        raise ConfigurationError("the AMQP URL contains a '#'; percent-encode it as %23")
    return parts


def query_of(parts: SplitResult) -> dict[str, str]:
    """The query parameters, each by its name. Raises ConfigurationError."""
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigurationError("the query of the AMQP URL cannot be read; write ?name=value&name=value") from None
    if len(dict(pairs)) < len(pairs):
        raise ConfigurationError("a parameter is given twice in the AMQP URL")
    return dict(pairs)


def take_parameter(url: str, name: str) -> tuple[str, str | None]:
    """`url` without the query parameter `name`, and its value; None: it has none. Raises ConfigurationError."""
    parts = split(urls_of_hosts(url)[0])
    query = query_of(parts)
    value = query.pop(name, None)
    if value is None:
        return url, None
    found = _AUTHORITY.fullmatch(url)
    authority = parts.netloc if found is None else found["authority"]
    path = urlunsplit(("", "", parts.path, urlencode(query), ""))  # which writes no "//" before an empty authority
    return f"{parts.scheme}://{authority}{path}", value
