"""The broker whose cascades are created, verified or deleted, and the two ways to it: AMQP and the management API."""

from collections.abc import Mapping
from typing import Any, Self

from delaystore.cascades._management import Management
from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.pika_internals import server_properties


class BrokerClient:
    """A virtual host of a broker. Connections are made at their first use.

    `url`: `amqp[s]://...`, see `broker_from_url`. `management`: the URL of its management API, see `Management`.
    None: there is none. `name`: what the broker shows of the connections.
    Raises ConfigurationError for a URL that cannot work.
    """

    def __init__(self, url: str, management: str | None = None, *, name: str = "delaystore delays") -> None:
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
