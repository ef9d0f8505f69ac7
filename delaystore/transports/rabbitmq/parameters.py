"""AMQP URLs as pika's parameters: hosts, query, TLS. Secrets are kept out of every text."""

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import pika

from delaystore.errors import ConfigurationError


def tls_context(
    ca_file: str | None = None, client_certificate: str | None = None, client_key: str | None = None
) -> ssl.SSLContext:
    """A context that verifies the broker against `ca_file` (None: the system's authorities).

    It presents `client_certificate` (PEM, with its key in the same file or in `client_key`) where one is given.
    Raises ConfigurationError, naming the file that cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the CA file {ca_file!r} cannot be used: {_file_error(error)}; give a PEM file"
        ) from None
    if client_certificate is None:
        if client_key is not None:
            raise ConfigurationError("a client key is given without its certificate; give client_certificate too")
        return context
    try:
        # a password, even none, keeps OpenSSL from asking at the terminal for that of an encrypted key
        context.load_cert_chain(client_certificate, client_key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the client certificate {client_certificate!r} cannot be used with the key "
            f"{client_key or client_certificate!r}: {_file_error(error)}"
        ) from None
    return context


def _file_error(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


_AUTHORITY: Final = re.compile(r"(?P<scheme>[^:/?#]*://)(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_LOGIN_AMONG_HOSTS: Final = re.compile("@.*,", re.DOTALL)
"""In the text before the last `@`: a second login, or a password with an `@` and a comma."""


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
class BrokerHost:
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

    hosts: Sequence[BrokerHost]

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
        raise ConfigurationError("the AMQP URLs differ in their virtual host; give all of them the same one")
    return Broker(tuple(hosts))


def _host(url: str, given: Mapping[str, str], heartbeat: int | None, connection_name: str | None) -> BrokerHost:
    parts = split(url)
    query = query_of(parts)
    files = {argument: query.pop(name) for name, argument in _TLS_FILES.items() if name in query} | dict(given)
    timeout = _number(query, "connection_timeout", at_least=1)
    options = _options(parts, query, heartbeat, connection_name)
    tls = _tls(parts, files, query)
    if query:
        raise ConfigurationError(f"unknown parameter {next(iter(query))!r} in the AMQP URL")
    return BrokerHost(
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
