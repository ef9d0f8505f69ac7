"""The broker whose topologies are administered: AMQP, the management API, and exports of definitions."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlsplit

import httpx

from delaystore.cascades.policies import applying
from delaystore.cascades.snapshot import NO_PERMISSIONS, BrokerSnapshot, ExchangeState, Permissions, Policy, QueueState
from delaystore.errors import ConfigurationError, TransportError, TransportUnavailableError
from delaystore.text import parse_json
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.parameters import Broker, broker_from_url
from delaystore.transports.rabbitmq.pika_internals import server_properties
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind


def exchange_of(document: Mapping[str, Any]) -> ExchangeState:
    """An exchange."""
    return ExchangeState(
        name=document["name"],
        type=document["type"],
        durable=document["durable"],
        auto_delete=document["auto_delete"],
        internal=bool(document.get("internal")),  # rabbitmqctl does not export it
        arguments=document["arguments"],
        policy=document.get("policy"),
        delayed=document.get("messages_delayed"),
    )


def queue_of(document: Mapping[str, Any]) -> QueueState:
    """A queue."""
    return QueueState(
        name=document["name"],
        type=document.get("type", document["arguments"].get("x-queue-type", "classic")),
        durable=document["durable"],
        auto_delete=document["auto_delete"],
        exclusive=bool(document.get("exclusive")),  # null or absent while there are no statistics
        arguments=document["arguments"],
        policy=document.get("policy"),
        messages=document.get("messages"),
        ready=document.get("messages_ready"),
        unacknowledged=document.get("messages_unacknowledged"),
        dead_lettering=document.get("messages_dlx"),
        published=document.get("message_stats", {}).get("publish", 0),
        consumers=document.get("consumers"),
        message_bytes=document.get("message_bytes"),
        ready_bytes=document.get("message_bytes_ready"),
        policy_definition=document.get("effective_policy_definition") or {},
        state=document.get("state"),
        delivery_limit=_limit(document.get("delivery_limit")),
        publish_rate=_rate(document, "publish"),
        deliver_rate=_rate(document, "deliver_get"),
        oldest=document.get("head_message_timestamp") or None,
    )


def _rate(document: Mapping[str, Any], kind: str) -> float | None:
    """Messages a second; None: there were none so far, or no statistics."""
    rate = document.get("message_stats", {}).get(f"{kind}_details", {}).get("rate")
    return None if rate is None else float(rate)


def _limit(given: Any) -> int | None:
    """A number, or else a word for none: unlimited."""
    return given if isinstance(given, int) and given >= 0 else None


def bindings_of(documents: Any) -> list[Binding]:
    """The bindings, except the default exchange's."""
    return [
        Binding(
            one["source"],
            one["destination"],
            DestinationKind(one["destination_type"]),
            one["routing_key"],
            one["arguments"],
        )
        for one in documents
        if one["source"]
    ]


def policy_of(document: Mapping[str, Any]) -> Policy:
    """A policy."""
    return Policy(
        name=document["name"],
        pattern=document["pattern"],
        definition=document["definition"],
        apply_to=document["apply-to"],
        priority=document["priority"],
    )


AnswerT = TypeVar("AnswerT")
_TIMEOUT: Final = 30.0
"""Seconds; a broker with many queues takes a while to list them."""
_NOT_FOUND: Final = 404
_REFUSALS: Final = (401, 403)
_WRONG_LOGIN: Final = "not_authorized"
"""The error of a refused login, with a z, in all versions. A missing right is `not_authorised`."""


class ManagementRefusedError(TransportError):
    """The management API knows the user, and does not allow the request."""


class Management:
    """A client of the management API, for one virtual host.

    Construction does not connect. Every method raises TransportUnavailableError where the API cannot be reached or
    refuses the login, ManagementRefusedError (a TransportError) where the user may not do that, and TransportError for
    any other unexpected answer.

    Args:
        url: `http[s]://[user[:password]@]host:port[/prefix]`. User and password default to those of `broker`.
        broker: The virtual host. For https:// its TLS settings are used as well.

    Raises:
        ConfigurationError: The URL cannot work.
        TransportUnavailableError: By all methods, when the API cannot be reached, or refuses the login.
        ManagementRefusedError: By all methods, where the user lacks a tag or permissions. It is a TransportError.
        TransportError: By all methods, for another answer than RabbitMQ's.

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
        """Whether a node of the cluster has a default name: its own, with the machine's in full.

        Args:
            default_name: The name, as in `rabbit@machine.example.org`.

        Returns:
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
        here = self.virtual_host
        return self._read(
            "vhosts", lambda all_: next((one.get("default_queue_type") for one in all_ if one["name"] == here), None)
        )

    def permissions(self) -> Permissions | None:
        """Permissions of the AMQP connection's user in the virtual host. None: only administrators may see that."""
        if self._login is None:
            return None
        try:
            return self._read(f"users/{_quoted(self._login[0])}/permissions", self._permissions_here)
        except ManagementRefusedError:
            return None

    def snapshot(self) -> BrokerSnapshot:
        """All of the virtual host, as of now."""
        return BrokerSnapshot(self.exchanges(), self.queues(), frozenset(self.bindings()), tuple(self.policies()))

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
        """List bindings of the virtual host.

        Args:
            source: Only bindings from this exchange; None: from all exchanges but the default one.

        Returns:
            The bindings; none where the exchange does not exist.

        """
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
        """Look up a policy of the virtual host.

        Args:
            name: Its name.

        Returns:
            The policy; None: there is none.

        """
        return next((policy for policy in self.policies() if policy.name == name), None)

    def set_policy(self, policy: Policy) -> None:
        """Create a policy, or change the one of that name. The user needs the tag policymaker or administrator.

        Args:
            policy: The policy.

        """
        document = {
            "pattern": policy.pattern,
            "definition": dict(policy.definition),
            "apply-to": policy.apply_to,
            "priority": policy.priority,
        }
        self._ask("PUT", f"policies/{self._vhost}/{_quoted(policy.name)}", document)

    def delete_policy(self, name: str) -> bool:
        """Delete a policy. The user needs the tag policymaker or administrator.

        Args:
            name: Its name.

        Returns:
            Whether it existed.

        """
        if self.policy(name) is None:
            return False
        self._ask("DELETE", f"policies/{self._vhost}/{_quoted(name)}")
        return True

    def _permissions_here(self, granted: Any) -> Permissions:
        here = (one for one in granted if one["vhost"] == self.virtual_host)
        return next((Permissions(one["configure"], one["write"], one["read"]) for one in here), NO_PERMISSIONS)

    def _read(self, path: str, read: Callable[[Any], AnswerT]) -> AnswerT:
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
    """The management API does not know the requested object."""


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
    """The text that a refusal has under that name. None: it has none."""
    try:
        return str(answer.json()[name])
    except (ValueError, KeyError, TypeError):
        return None


def _quoted(name: str) -> str:
    """A name as one segment of a path."""
    if name in (".", ".."):  # client and server both take these, percent-encoded too, for steps in the path
        raise ConfigurationError(f"the management API cannot be asked for something named {name!r}")
    return quote(name, safe="")


class BrokerClient:
    """A virtual host of a broker. Connections are made at their first use; a `with` block closes them.

    Args:
        url: `amqp[s]://...`, see `broker_from_url`.
        management: The URL of its management API, see `Management`. None: there is none.
        name: How the broker shows the connections.

    Raises:
        ConfigurationError: A URL cannot work.

    """

    def __init__(self, url: str, management: str | None = None, *, name: str = "delaystore cascade") -> None:
        self.broker = broker_from_url(url, connection_name=name)
        self.connections = BlockingConnections(self.broker)
        self.management = None if management is None else Management(management, self.broker)

    def __repr__(self) -> str:
        return f"<BrokerClient {self.label}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def label(self) -> str:
        """Host, port and virtual host, without secrets."""
        return self.broker.label

    def version(self) -> str:
        """The version that the broker names when AMQP connects, as in 3.10.8. Raises TransportUnavailableError."""
        return str(self._properties().get("version", "unknown"))

    def check_same_cluster(self) -> None:
        """Raise ConfigurationError if the management API is another broker's."""
        if self.management is None:
            return
        ours, theirs = self._properties().get("cluster_name"), self.management.cluster_name()
        if ours is None or ours == theirs:
            return
        # each node of a cluster that was given no name has another one for it, with an @
        if "@" not in theirs or not self.management.has_node(str(ours)):
            raise ConfigurationError(
                f"the management API at {self.management.label} belongs to cluster {theirs!r}, and the broker at "
                f"{self.label} to {ours!r}; give the API of the same broker, or if they are nodes of one cluster, name "
                "it: rabbitmqctl set_cluster_name NAME"
            )

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self.connections.close()
        if self.management is not None:
            self.management.close()

    def _properties(self) -> Mapping[str, Any]:
        with self.connections.channel() as channel:
            return server_properties(channel)


_UNREADABLE: Final = "is no export of definitions; make one with rabbitmqctl export_definitions FILE"


class Definitions:
    """The export of a broker's definitions in a file.

    Args:
        path: The file.

    Raises:
        ConfigurationError: The file is no export.
        OSError: The file cannot be read.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._document = parse_json(path.read_text(encoding="utf-8-sig"))
            self._exchanges = self._document["exchanges"]
        except (ValueError, LookupError, TypeError):
            raise ConfigurationError(f"{path} {_UNREADABLE}") from None

    def virtual_host_with(self, exchange: str) -> str | None:
        """Find the one virtual host that has an exchange.

        Args:
            exchange: Its name.

        Returns:
            The virtual host's name; None: the export does not name virtual hosts.

        Raises:
            ConfigurationError: No virtual host has it, or several have.

        """
        found: list[str | None] = [one.get("vhost") for one in self._exchanges if one.get("name") == exchange]
        if not found:
            raise ConfigurationError(f"{self._path} has no exchange {exchange!r}; check its name, or export again")
        if len(found) > 1:
            raise ConfigurationError(
                f"{self._path} has an exchange {exchange!r} in several virtual hosts; pass --broker URL, whose path "
                "names one"
            )
        return found[0]

    def snapshot(self, virtual_host: str | None) -> BrokerSnapshot:
        """The virtual host at the time of the export, without counts.

        Args:
            virtual_host: Its name; None: the only one of the export.

        Returns:
            The virtual host.

        Raises:
            ConfigurationError: The file is no export.

        """
        try:
            policies = tuple(policy_of(one) for one in self._of("policies", virtual_host))
            exchanges = [exchange_of(one) for one in self._of("exchanges", virtual_host)]
            queues = [queue_of(one) for one in self._of("queues", virtual_host)]
            bindings = frozenset(bindings_of(self._of("bindings", virtual_host)))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ConfigurationError(f"{self._path} {_UNREADABLE}") from None
        return BrokerSnapshot(
            exchanges={one.name: _with_policy(one, policies) for one in exchanges},
            queues={one.name: one for one in queues},
            bindings=bindings,
            policies=policies,
        )

    def _of(self, kind: str, virtual_host: str | None) -> Sequence[Mapping[str, Any]]:
        """Documents of the virtual host. An export of a single one does not say which it is."""
        documents = self._document.get(kind, ())
        return [one for one in documents if virtual_host is None or one.get("vhost") in (virtual_host, None)]


def _with_policy(exchange: ExchangeState, policies: Sequence[Policy]) -> ExchangeState:
    policy = applying(policies, exchange.name)
    return exchange if policy is None else replace(exchange, policy=policy.name)
