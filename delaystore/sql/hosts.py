"""Several hosts of one database, as a primary and its standbys: `scheme://user:password@h1:p1,h2:p2/database`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from sqlalchemy import URL, make_url

from delaystore.errors import ConfigurationError

_SEVERAL: Final = re.compile(
    r"(?P<before>[\w+]+://(?:[^:/]*(?::[^@]*)?@)?+)(?P<hosts>[^/?]*,[^/?]*)(?P<after>[/?].*)?", re.DOTALL
)
"""A URL, taken apart as SQLAlchemy does, whose part for the host has a comma."""
_HOST: Final = re.compile(r"(?:\[(?P<address>[^\s\[\]]+)\]|(?P<name>[^\s\[\]:]+))(?::(?P<port>\d{1,5}))?")
_FORM: Final = "write several hosts as in postgresql://user:password@h1:5432,h2:5432/name, an IPv6 address in brackets"


class Host(NamedTuple):
    """Where a server listens. `port` None: where the database's servers usually do."""

    name: str
    port: int | None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return name if self.port is None else f"{name}:{self.port}"


class HostsInTurn:
    """The hosts of one engine, tried in turn from the one that answered last; threads may share it."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._hosts = tuple(hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def answered(self, host: Host) -> None:
        """Try `host` first from now on, if it is one of these."""
        hosts = self._hosts
        if host in hosts:
            start = hosts.index(host)
            self._hosts = hosts[start:] + hosts[:start]


def parsed(url: str) -> URL:
    """The URL of a text that may name several hosts; raises what `make_url` raises, and ConfigurationError."""
    if isinstance(url, str):
        scheme, mark, rest = url.partition("://")
        url = f"{scheme.lower()}{mark}{rest}" if mark else url
    found = _SEVERAL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        return make_url(url)
    if "@" in found["hosts"]:
        raise ConfigurationError("write @ and : in the user name or password of a URL as %40 and %3A")
    plain = make_url(found["before"] + (found["after"] or ""))
    if {"host", "port"} & plain.query.keys():
        raise ConfigurationError("the database URL names hosts in two places; leave one of them out")
    return _with(plain, [_host(text) for text in found["hosts"].split(",")])


def hosts_of(url: URL) -> Sequence[Host]:
    """The hosts that `url` names, in their order, whichever way it names them; none where the driver chooses one."""
    named, ports = (_listed(url.query, name) for name in ("host", "port"))
    if not named:
        return [Host(url.host, url.port)] if url.host else []
    if not ports:
        return [_host(text) if _HOST.fullmatch(text) else Host(text, None) for text in named]
    if len(ports) not in (1, len(named)) or not all(port.isdecimal() or not port for port in ports):
        raise ConfigurationError(f"the database URL needs a port for each of its hosts; {_FORM}")
    pairs = zip_longest(named, ports, fillvalue=ports[0])
    return [Host(name, int(port) if port else None) for name, port in pairs]


def in_one_form(url: URL, port: int, defaults: Mapping[str, str]) -> URL:
    """`url`, if it names several hosts, in the form that SQLAlchemy and libpq take; `port` where a host has none.

    What `defaults` has and the URL's query has not is added to that.
    """
    hosts = hosts_of(url)
    if len(hosts) < 2:
        return url
    added = {name: value for name, value in defaults.items() if name not in url.query}
    return _with(url, [Host(host.name, host.port or port) for host in hosts]).update_query_dict(added)


def _with(url: URL, hosts: Sequence[Host]) -> URL:
    ports = ",".join("" if host.port is None else str(host.port) for host in hosts)
    query = {"host": ",".join(host.name for host in hosts), "port": ports}
    return url.set(host=None, port=None).update_query_dict(query)


def _host(text: str) -> Host:
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65535:  # the text may be part of a password
        raise ConfigurationError(f"one of the hosts in the database URL cannot be read; {_FORM}")
    return Host(found["address"] or found["name"], int(found["port"]) if found["port"] else None)


def _listed(query: Mapping[str, str | tuple[str, ...]], name: str) -> Sequence[str]:
    value = query.get(name, "")
    return value.split(",") if isinstance(value, str) and value else list(value)
