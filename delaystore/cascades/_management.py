"""RabbitMQ's management API, for one virtual host."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlsplit

import httpx

from delaystore.cascades._documents import bindings_of, exchange_of, policy_of, queue_of
from delaystore.cascades._snapshot import NO_PERMISSIONS, ExchangeState, Permissions, Policy, QueueState, Snapshot
from delaystore.errors import ConfigurationError, TransportError, TransportUnavailableError
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.topology.layout import Binding

Answer = TypeVar("Answer")
_TIMEOUT: Final = 30.0
"""Seconds; a broker with many queues takes a while to list them."""
_NOT_FOUND: Final = 404
_REFUSALS: Final = (401, 403)
_WRONG_LOGIN: Final = "not_authorized"
"""The error of a refused login, with a z, in all versions. What a user may not do is `not_authorised`."""


class ManagementRefusedError(TransportError):
    """The management API knows the user, and does not allow the request."""


class Management:
    """A client for the virtual host of `broker`.

    `url`: `http[s]://[user[:password]@]host:port[/prefix]`. User and password default to those of `broker`; for
    https:// its TLS settings are used as well.

    Construction connects nowhere, and raises ConfigurationError for a URL that cannot work. Every method raises
    TransportUnavailableError where the API cannot be reached or refuses the login, ManagementRefusedError (a
    TransportError) where the user may not do that, and TransportError for any other unexpected answer.
    """

    def __init__(self, url: str, broker: Broker) -> None:
        parts = _split(url)
        self.label = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        self.virtual_host = broker.virtual_host
        self._vhost = _quoted(self.virtual_host)
        self._login = broker.login
        self._client = httpx.Client(
            base_url=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}/api/",
            auth=_given_login(parts) or self._login,
            verify=_tls(parts, broker.tls),
            timeout=_TIMEOUT,
            trust_env=False,  # no proxy or .netrc of the environment: --management says it all
        )

    def __repr__(self) -> str:
        return f"<Management {self.label}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._client.close()

    def version(self) -> str:
        """The broker's version, as in 3.10.8."""
        return self._read("overview", lambda overview: str(overview["rabbitmq_version"]))

    def cluster_name(self) -> str:
        """The name of the broker's cluster. A single node is a cluster, too."""
        return self._read("overview", lambda overview: str(overview["cluster_name"]))

    def has_node(self, default_name: str) -> bool:
        """Whether a node of the cluster calls it so where it was given no name: by its own, with the machine's in full.

        False as well: the user may not see the nodes, which takes the tag monitoring.
        """
        name, _, machine = default_name.partition("@")
        try:
            nodes = self._read("nodes", lambda answer: [str(one["name"]).partition("@") for one in answer])
        except ManagementRefusedError:
            return False
        return any(node == name and host in ("localhost", machine, machine.split(".")[0]) for node, _, host in nodes)

    def feature_flags(self) -> Mapping[str, bool] | None:
        """Whether each feature flag is enabled, by its name. None: only administrators see them, before RabbitMQ 4."""
        try:
            return self._read("feature-flags", lambda flags: {one["name"]: one["state"] == "enabled" for one in flags})
        except ManagementRefusedError:
            return None

    def default_queue_type(self) -> str | None:
        """The type of queues that are declared without one. None: the virtual host does not say."""
        return self._read("vhosts", self._default_type_here)

    def permissions(self) -> Permissions | None:
        """What the user of the AMQP connection may do in the virtual host. None: only administrators may see that."""
        if self._login is None:
            return None
        try:
            return self._read(f"users/{_quoted(self._login[0])}/permissions", self._permissions_here)
        except ManagementRefusedError:
            return None

    def snapshot(self) -> Snapshot:
        """All of the virtual host, as of now."""
        return Snapshot(self.exchanges(), self.queues(), frozenset(self.bindings()), tuple(self.policies()))

    def exchanges(self) -> Mapping[str, ExchangeState]:
        """All exchanges of the virtual host, by name."""
        return self._read(f"exchanges/{self._vhost}", lambda answer: {one["name"]: exchange_of(one) for one in answer})

    def queues(self) -> Mapping[str, QueueState]:
        """All queues of the virtual host, by name."""
        return self._read(f"queues/{self._vhost}", lambda answer: {one["name"]: queue_of(one) for one in answer})

    def message_counts(self) -> Mapping[str, int | None]:
        """Messages by queue, as `QueueState.messages`, but at most 5 seconds old.

        None: the broker has not counted yet. Queues whose node is down may be left out.
        """
        path = f"queues/{self._vhost}?disable_stats=true&enable_queue_totals=true"
        return self._read(path, lambda answer: {one["name"]: one.get("messages") for one in answer})

    def bindings(self, source: str | None = None) -> Sequence[Binding]:
        """The bindings from the exchange `source`, if it exists; None: from all exchanges but the default one."""
        if source is None:
            return self._read(f"bindings/{self._vhost}", bindings_of)
        try:
            return self._read(f"exchanges/{self._vhost}/{_quoted(source)}/bindings/source", bindings_of)
        except _NotFoundError:
            return []

    def policies(self) -> Sequence[Policy]:
        """All policies of the virtual host."""
        return self._read(f"policies/{self._vhost}", lambda answer: [policy_of(one) for one in answer])

    def policy(self, name: str) -> Policy | None:
        """The policy of that name. None: there is none."""
        return next((policy for policy in self.policies() if policy.name == name), None)

    def set_policy(self, policy: Policy) -> None:
        """Create the policy, or change the one of that name. The user needs the tag policymaker or administrator."""
        document = {
            "pattern": policy.pattern,
            "definition": dict(policy.definition),
            "apply-to": policy.apply_to,
            "priority": policy.priority,
        }
        self._ask("PUT", f"policies/{self._vhost}/{_quoted(policy.name)}", document)

    def delete_policy(self, name: str) -> bool:
        """Delete the policy. False: there is none. The user needs the tag policymaker or administrator."""
        if self.policy(name) is None:
            return False
        self._ask("DELETE", f"policies/{self._vhost}/{_quoted(name)}")
        return True

    def _default_type_here(self, vhosts: Any) -> str | None:
        return next((one.get("default_queue_type") for one in vhosts if one["name"] == self.virtual_host), None)

    def _permissions_here(self, granted: Any) -> Permissions:
        here = (one for one in granted if one["vhost"] == self.virtual_host)
        return next((Permissions(one["configure"], one["write"], one["read"]) for one in here), NO_PERMISSIONS)

    def _read(self, path: str, read: Callable[[Any], Answer]) -> Answer:
        answer = self._ask("GET", path)
        try:
            return read(answer.json())
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self._no_api("something that RabbitMQ would not") from None

    def _ask(self, method: str, path: str, document: Any = None) -> httpx.Response:
        try:
            answer = self._client.request(method, path, json=document)
        except httpx.HTTPError as error:
            raise TransportUnavailableError(
                f"the management API at {self.label} cannot be reached: {str(error) or type(error).__name__}"
            ) from None
        if answer.is_success:
            return answer
        raise self._failure(answer)

    def _failure(self, answer: httpx.Response) -> TransportError:
        reason = _reason(answer)
        if answer.status_code in _REFUSALS and _word(answer, "error") == _WRONG_LOGIN:
            return TransportUnavailableError(
                f"the management API at {self.label} refused the login; check user name and password"
            )
        if answer.status_code in _REFUSALS:
            return ManagementRefusedError(
                f"the management API at {self.label} refused: {reason}; give the user the tag management, "
                "policymaker for policies, and permissions in the virtual host"
            )
        if answer.status_code == _NOT_FOUND and "json" in answer.headers.get("content-type", ""):
            return _NotFoundError(
                f"the management API at {self.label} knows no {unquote(answer.url.path)}; check the virtual host, and "
                "that this user has permissions in it"
            )
        return self._no_api(f"{answer.status_code} {reason}")

    def _no_api(self, text: str) -> TransportError:
        return TransportError(f"the management API at {self.label} answered {text}; check its URL")


class _NotFoundError(TransportError):
    """The management API does not know what was asked for."""


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigurationError(
            "the management URL cannot be read; check host and port, and percent-encode special characters in the "
            "password"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(
            "a management URL is http[s]://[user:password@]host:port, as in http://localhost:15672"
        )
    return parts


def _given_login(parts: SplitResult) -> tuple[str, str] | None:
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")


def _tls(parts: SplitResult, context: ssl.SSLContext | None) -> ssl.SSLContext | bool:
    """The AMQP connection's settings, where it has any: as a rule one certificate authority signs both."""
    if parts.scheme == "http":
        return False  # nothing is encrypted; the default would still read all certificates
    return ssl.create_default_context() if context is None else context


def _reason(answer: httpx.Response) -> str:
    return " ".join((_word(answer, "reason") or answer.reason_phrase).split())[:200]


def _word(answer: httpx.Response, name: str) -> str | None:
    """What a refusal says under that name. None: nothing."""
    try:
        return str(answer.json()[name])
    except (ValueError, KeyError, TypeError):
        return None


def _quoted(name: str) -> str:
    """A name as one segment of a path."""
    if name in (".", ".."):  # client and server both take these, percent-encoded too, for steps in the path
        raise ConfigurationError(f"the management API cannot be asked for something named {name!r}")
    return quote(name, safe="")
