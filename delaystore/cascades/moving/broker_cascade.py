"""A cascade on a broker, to move messages from or to."""

from typing import Any

from pika import exceptions
from typing_extensions import override

from delaystore.cascades.management import BrokerClient
from delaystore.errors import ConfigurationError, TransportSetupError
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.pika_internals import server_properties, virtual_host_of
from delaystore.transports.rabbitmq.publisher import BatchPublisher
from delaystore.transports.rabbitmq.queues import missing, queue_exists, ready_counts
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology


class BrokerCascade(BrokerClient):
    """A cascade on a broker. Several threads may publish to it.

    `name`: the cascade's name, for people. Raises ConfigurationError for a URL that cannot work.
    """

    def __init__(self, url: str, cascade: CascadeTopology, name: str, management: str | None = None) -> None:
        super().__init__(url, management)
        self.cascade = cascade
        self.name = name
        self.queues = tuple(cascade.level(number) for number in range(cascade.levels))
        """The level queues, by level."""
        self._publisher = BatchPublisher(self.broker)
        self.publish = self._publisher.publish

    def __repr__(self) -> str:
        return f"<BrokerCascade {self.name} on {self.broker.label}>"

    @property
    def user(self) -> str | None:
        """The user of the connections; None: it logs in by its certificate."""
        login = self.broker.login
        return None if login is None else login[0]

    def require_level_queues(self) -> None:
        """ConfigurationError unless there is a level queue to read from; TransportUnavailableError."""
        if all(count is None for count in ready_counts(self.connections, self.queues)):
            raise ConfigurationError(
                f"{self.broker.label} has no cascade {self.name}: there is no queue {self.queues[-1]!r} nor any other "
                "of its levels; check the cascade's name and the virtual host"
            )

    def require_cascade(self) -> None:
        """ConfigurationError naming the first exchange or queue of the cascade that does not exist."""
        absent = missing(self.connections, self.cascade.layout().nodes)
        if absent:
            raise ConfigurationError(
                f"the cascade {self.name} on {self.broker.label} lacks {absent[0]}; "
                f"run delaystore cascade create --cascade {self.name}"
            )

    def ready(self) -> list[int]:
        """How many messages are ready in each level queue, by level; 0 for one that does not exist.

        Raises TransportSetupError where the broker does not say, TransportUnavailableError.
        """
        return [count or 0 for count in ready_counts(self.connections, self.queues)]

    def messages(self) -> int | None:
        """How many messages the management API counts in the level queues, ready or not; None: there is no API."""
        if self.management is None:
            return None
        states = self.management.queues()
        return sum(states[name].messages or 0 for name in self.queues if name in states)

    def same_broker(self, other: "BrokerCascade") -> bool:
        """Whether both are one virtual host of one broker, with any URLs.

        Where only the URLs differ, a temporary queue declared on one and looked up on the other tells. Raises
        ConfigurationError where the user may not declare it.
        """
        if self.broker.label == other.broker.label:
            return True
        with self.connections.channel() as ours, other.connections.channel() as theirs, quiet_pika():
            if not _may_be_one(ours, theirs):
                return False
            try:
                name = ours.queue_declare("", exclusive=True, auto_delete=True).method.queue
            except exceptions.ChannelClosedByBroker as error:
                raise ConfigurationError(
                    f"{self.broker.label} and {other.broker.label} may be one broker, and its user may not declare the "
                    f"queue that would show it ({reason_of(error)}); name the broker alike in both URLs, or grant the "
                    "configure permission for amq\\.gen.*"
                ) from None
            try:
                return queue_exists(other.connections, name)
            except TransportSetupError:
                return True  # another connection's exclusive queue is locked

    def shares_queues(self, other: "BrokerCascade") -> bool:
        """Whether a level queue of one has the name of a level queue of the other."""
        return not set(self.queues).isdisjoint(other.queues)

    def require_no_part(self, queue: str) -> None:
        """ConfigurationError for a poison queue that is a part of the cascade."""
        if any(queue == part.name for part in self.cascade.layout().nodes):
            raise ConfigurationError(f"the poison queue {queue!r} is a part of the cascade {self.name}; name another")

    @override
    def close(self) -> None:
        self._publisher.close()
        super().close()


def _may_be_one(ours: Any, theirs: Any) -> bool:
    """Whether two channels may lead to one virtual host of one cluster."""
    if virtual_host_of(ours) != virtual_host_of(theirs):
        return False
    names = {str(server_properties(channel).get("cluster_name")) for channel in (ours, theirs)}
    # each node of a cluster that was given no name has another one for it, with an @
    return len(names) == 1 or all("@" in name for name in names)
