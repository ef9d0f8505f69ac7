"""An AMQP URL as pika's parameters; secrets are kept out of every text."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import pika

from delaystore.errors import ConfigurationError

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
class Broker:
    """One broker, and how to connect to it."""

    label: str
    """Host, port and virtual host, for people to read; never user or password."""
    parameters: Callable[..., pika.ConnectionParameters]
    """Fresh parameters for one connection; keyword arguments override."""

    def __repr__(self) -> str:
        return f"<Broker {self.label}>"

    @property
    def login(self) -> tuple[str, str] | None:
        """User and password; None: the client certificate."""
        credentials = self.parameters().credentials
        return (credentials.username, credentials.password) if isinstance(credentials, pika.PlainCredentials) else None


def broker_from_url(
    url: str,
    *,
    ca_file: str | None = None,
    client_certificate: str | None = None,
    client_key: str | None = None,
    heartbeat: int | None = None,
    connection_name: str | None = None,
) -> Broker:
    """The broker at `amqp[s]://[user[:password]@]host[:port][/vhost][?query]`.

    Query parameters: cafile (or cacertfile), certfile, keyfile, heartbeat (seconds, 0 for none), connection_timeout
    (seconds), server_name_indication, connection_name, auth_mechanism=external (log in by the client certificate).
    Arguments override the query. Raises ConfigurationError, whose text repeats nothing that might be a secret.
    """
    parts = _split(url)
    query = _query(parts)
    files = {argument: query.pop(name) for name, argument in _TLS_FILES.items() if name in query}
    given = {"ca_file": ca_file, "client_certificate": client_certificate, "client_key": client_key}
    files |= {argument: path for argument, path in given.items() if path is not None}
    options = _options(parts, query, heartbeat, connection_name)
    tls = _tls(parts, files, query)
    if query:
        raise ConfigurationError(f"unknown parameter {next(iter(query))!r} in the AMQP URL")
    label = f"{options['host']}:{options['port']}"
    if options["virtual_host"] != "/":
        label += f" (virtual host {options['virtual_host']!r})"
    return Broker(label=label, parameters=lambda **more: pika.ConnectionParameters(**{**options, **tls, **more}))


def take_parameter(url: str, name: str) -> tuple[str, str | None]:
    """`url` without the query parameter `name`, and its value; None: it has none. Raises ConfigurationError."""
    parts = _split(url)
    query = _query(parts)
    value = query.pop(name, None)
    return (url, None) if value is None else (urlunsplit(parts._replace(query=urlencode(query))), value)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigurationError(
            "the AMQP URL cannot be read; check host and port, and percent-encode special characters in the password"
        ) from None
    if parts.scheme not in ("amqp", "amqps"):
        raise ConfigurationError("an AMQP URL starts with amqp:// or amqps://, as in amqp://localhost")
    if parts.fragment:
        raise ConfigurationError("the AMQP URL contains a '#'; percent-encode it as %23")
    return parts


def _query(parts: SplitResult) -> dict[str, str]:
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigurationError("the query of the AMQP URL cannot be read; write ?name=value&name=value") from None
    if len(dict(pairs)) < len(pairs):
        raise ConfigurationError("a parameter is given twice in the AMQP URL")
    return dict(pairs)


def _options(
    parts: SplitResult, query: dict[str, str], heartbeat: int | None, connection_name: str | None
) -> dict[str, Any]:
    path = parts.path[1:]
    if "/" in path:
        raise ConfigurationError("the AMQP URL has more than a virtual host in its path; write a '/' in it as %2F")
    given_heartbeat = _number(query, "heartbeat", DEFAULT_HEARTBEAT)
    given_name = query.pop("connection_name", "delaystore")
    timeout = _number(query, "connection_timeout", 10, at_least=1)
    return {
        "host": unquote(parts.hostname or "localhost"),
        "port": parts.port or (5671 if parts.scheme == "amqps" else 5672),
        "virtual_host": unquote(path) or "/",
        "credentials": _credentials(parts, query),
        "heartbeat": heartbeat if heartbeat is not None else given_heartbeat,
        "socket_timeout": timeout,
        "stack_timeout": timeout + 5,
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
    return {"ssl_options": pika.SSLOptions(_tls_context(**files), server_name)}


def _tls_context(
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


def _number(query: dict[str, str], name: str, default: int, *, at_least: int = 0) -> int:
    text = query.pop(name, None)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or int(text) < at_least:
        raise ConfigurationError(f"{name} in the AMQP URL must be whole seconds from {at_least}")
    return int(text)
