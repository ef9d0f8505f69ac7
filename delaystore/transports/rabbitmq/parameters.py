"""AMQP URLs as pika's parameters; secrets are kept out of every text."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, unquote

import pika

from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq._tls import tls_context
from delaystore.transports.rabbitmq.urls import query_of, split, urls_of_hosts

DEFAULT_HEARTBEAT: Final = 15
"""Seconds; a dead connection is noticed after about two of them."""
_TLS_FILES: Final = {
    "cafile": "ca_file",
    "cacertfile": "ca_file",
    "certfile": "client_certificate",
    "keyfile": "client_key",
}
"""URL query parameters of the RabbitMQ URI specification (and Python's spelling), by our argument."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """One host of a broker, by name or address, and how to connect to it."""

    name: str
    port: int
    parameters: Callable[..., pika.ConnectionParameters]
    """Fresh parameters for one connection; keyword arguments override."""
    timeout: int | None = None
    """Seconds that each of its addresses has to take a connection; None: the URL does not say."""

    @property
    def label(self) -> str:
        """Host and port, for people to read."""
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"

    def __repr__(self) -> str:
        return f"<Host {self.label}>"


@dataclass(frozen=True)
class Broker:
    """One virtual host of one broker: the hosts by which it is reached, in whose place any other does as well."""

    hosts: Sequence[Host]

    def __repr__(self) -> str:
        return f"<Broker {self.label}>"

    @property
    def label(self) -> str:
        """All hosts and ports, and the virtual host, for people to read; never user or password."""
        return self.named(", ".join(host.label for host in self.hosts))

    def named(self, where: str) -> str:
        """`where`, one or more of its hosts, with the virtual host unless that is the usual one."""
        return where if self.virtual_host == "/" else f"{where} (virtual host {self.virtual_host!r})"

    @property
    def virtual_host(self) -> str:
        """The same on all hosts."""
        return str(self.hosts[0].parameters().virtual_host)

    @property
    def login(self) -> tuple[str, str] | None:
        """User and password of the first host; None: the client certificate."""
        credentials = self.hosts[0].parameters().credentials
        return (credentials.username, credentials.password) if isinstance(credentials, pika.PlainCredentials) else None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context of the first host's TLS; None: it is not encrypted."""
        options = self.hosts[0].parameters().ssl_options
        return None if options is None else options.context


def broker_from_url(
    url: str | Sequence[str],
    *,
    ca_file: str | None = None,
    client_certificate: str | None = None,
    client_key: str | None = None,
    heartbeat: int | None = None,
    connection_name: str | None = None,
) -> Broker:
    """The broker at `amqp[s]://[user[:password]@]host[:port][,host[:port]...][/vhost][?query]`.

    Several URLs are one broker, too: each has its own hosts, login and query, and all have the same virtual host.
    Query parameters: cafile (or cacertfile), certfile, keyfile, heartbeat (seconds, 0 for none), connection_timeout
    (seconds that each address has to take a connection, the login included), server_name_indication, connection_name,
    auth_mechanism=external (log in by the client certificate).
    Arguments override the query. Raises ConfigurationError, whose text repeats nothing that might be a secret.
    """
    given = {"ca_file": ca_file, "client_certificate": client_certificate, "client_key": client_key}
    files = {argument: path for argument, path in given.items() if path is not None}
    urls = [url] if isinstance(url, str) else url
    hosts = [_host(one, files, heartbeat, connection_name) for each in urls for one in urls_of_hosts(each)]
    if not hosts:
        raise ConfigurationError("no AMQP URL is given; give one at least, as in amqp://localhost")
    if len({host.parameters().virtual_host for host in hosts}) > 1:
        raise ConfigurationError("the AMQP URLs differ in their virtual host; its queues are others, so give one")
    return Broker(tuple(hosts))


def _host(url: str, given: Mapping[str, str], heartbeat: int | None, connection_name: str | None) -> Host:
    parts = split(url)
    query = query_of(parts)
    files = {argument: query.pop(name) for name, argument in _TLS_FILES.items() if name in query} | dict(given)
    timeout = _number(query, "connection_timeout", at_least=1)
    options = _options(parts, query, heartbeat, connection_name)
    tls = _tls(parts, files, query)
    if query:
        raise ConfigurationError(f"unknown parameter {next(iter(query))!r} in the AMQP URL")
    return Host(
        name=options["host"],
        port=options["port"],
        parameters=lambda **more: pika.ConnectionParameters(**{**options, **tls, **more}),
        timeout=timeout,
    )


def _options(
    parts: SplitResult, query: dict[str, str], heartbeat: int | None, connection_name: str | None
) -> dict[str, Any]:
    path = parts.path[1:]
    if "/" in path:
        raise ConfigurationError("the AMQP URL has more than a virtual host in its path; write a '/' in it as %2F")
    given_heartbeat = _number(query, "heartbeat")
    given_name = query.pop("connection_name", "delaystore")
    return {
        "host": unquote(parts.hostname or "localhost"),
        "port": parts.port or (5671 if parts.scheme == "amqps" else 5672),
        "virtual_host": unquote(path) or "/",
        "credentials": _credentials(parts, query),
        "heartbeat": next(each for each in (heartbeat, given_heartbeat, DEFAULT_HEARTBEAT) if each is not None),
        "client_properties": {"connection_name": connection_name or given_name},
    }


def _credentials(parts: SplitResult, query: dict[str, str]) -> Any:
    mechanism = query.pop("auth_mechanism", "plain").lower()
    if mechanism == "external":
        return pika.credentials.ExternalCredentials()
    if mechanism != "plain":
        raise ConfigurationError("auth_mechanism in the AMQP URL must be plain or external")
    if parts.username is None:
        return pika.PlainCredentials("guest", "guest")
    return pika.PlainCredentials(unquote(parts.username), unquote(parts.password or ""))


def _tls(parts: SplitResult, files: Mapping[str, str], query: dict[str, str]) -> dict[str, pika.SSLOptions]:
    server_name = query.pop("server_name_indication", None) or parts.hostname or "localhost"
    if parts.scheme == "amqp":
        if files:
            raise ConfigurationError(f"{next(iter(files))} is given, but amqp:// is not encrypted; use amqps://")
        return {}
    return {"ssl_options": pika.SSLOptions(tls_context(**files), server_name)}


def _number(query: dict[str, str], name: str, *, at_least: int = 0) -> int | None:
    text = query.pop(name, None)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < at_least:
        raise ConfigurationError(f"{name} in the AMQP URL must be whole seconds from {at_least}")
    return int(text)
