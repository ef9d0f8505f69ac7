"""A cascade on a broker, to move from or to."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from pika import PlainCredentials, exceptions

from delaystore.errors import ConfigurationError, TransportError
from delaystore.transports.abc import Outcome
from delaystore.transports.rabbitmq.administration import Administered
from delaystore.transports.rabbitmq.administration.declaring import named
from delaystore.transports.rabbitmq.administration.probing import probe_existence
from delaystore.transports.rabbitmq.flight import Publishable
from delaystore.transports.rabbitmq.logs import quiet_pika
from delaystore.transports.rabbitmq.moving.connection import RawConnection
from delaystore.transports.rabbitmq.owner import Owner
from delaystore.transports.rabbitmq.publisher import Sending
from delaystore.transports.rabbitmq.reasons import reason_of
from delaystore.transports.rabbitmq.topology.cascade import CascadeTopology
from delaystore.transports.rabbitmq.topology.layout import Exchange, Layout, Queue

_NOT_FOUND: Final = 404


class Place(Administered):
    """A cascade on a broker, which can be published to by several threads.

    `name`: the cascade's, for people. Raises ConfigurationError for a URL that cannot work.
    """

    def __init__(self, url: str, cascade: CascadeTopology, name: str, management: str | None = None) -> None:
        super().__init__(url, management)
        self.cascade = cascade
        self.name = name
        self.queues = tuple(cascade.level(number) for number in range(cascade.levels))
        """The level queues, by level."""
        self._lock = threading.Lock()
        self._quarantine = threading.Lock()
        self._owner: Owner | None = None

    def __repr__(self) -> str:
        return f"<Place {self.name} on {self.broker.label}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def user(self) -> str | None:
        """The user of the connections; None: it logs in by its certificate."""
        credentials = self.broker.parameters().credentials
        return credentials.username if isinstance(credentials, PlainCredentials) else None

    def publish(self, copies: Sequence[Publishable], timeout: float) -> Sequence[Outcome]:
        """Publish with confirms, and return one outcome for each, within about `timeout` seconds."""
        return Sending(copies, timeout, self._running_owner, self._quarantine).run()

    def require_level_queues(self) -> None:
        """ConfigurationError unless there is a level queue to read from; TransportUnavailableError."""
        queues = tuple(Queue(name) for name in self.queues)
        if len(probe_existence(self.connections, Layout(queues=queues))) == len(queues):
            raise ConfigurationError(
                f"{self.broker.label} has no cascade {self.name}: there is no queue {self.queues[-1]!r} nor any other "
                "of its levels; check the cascade's name and the virtual host"
            )

    def require_cascade(self) -> None:
        """ConfigurationError naming the first exchange or queue of the cascade that does not exist."""
        layout = self.cascade.layout()
        missing = probe_existence(self.connections, Layout(layout.exchanges, layout.queues))
        if missing:
            raise ConfigurationError(
                f"the cascade {self.name} on {self.broker.label} lacks {named(missing[0])}; "
                f"run delaystore delays create --cascade {self.name}"
            )

    def ready(self) -> list[int]:
        """How many messages are ready in each level queue, by level; 0 for one that does not exist.

        Raises TransportError for what may not be looked at, TransportUnavailableError.
        """
        counts: list[int] = []
        while len(counts) < len(self.queues):
            try:
                with self.connections.channel() as channel, quiet_pika():
                    for name in self.queues[len(counts) :]:
                        counts.append(channel.queue_declare(name, passive=True).method.message_count)  # noqa: PERF401 - kept when one is missing
            except exceptions.ChannelClosedByBroker as error:
                if error.reply_code != _NOT_FOUND:
                    name = self.queues[len(counts)]
                    raise TransportError(f"queue {name!r} cannot be looked at: {reason_of(error)}") from None
                counts.append(0)
        return counts

    def messages(self) -> int | None:
        """All that the management API counts in the level queues, also what is not ready; None: there is no API."""
        if self.management is None:
            return None
        states = self.management.queues()
        return sum(states[name].messages or 0 for name in self.queues if name in states)

    def same_broker(self, other: "Place") -> bool:
        """Whether both are one virtual host of one broker, under whatever names.

        Where only the names differ, a queue that is deleted at once tells. ConfigurationError where it may not be
        declared, and nothing else can tell.
        """
        if self.broker.label == other.broker.label:
            return True
        with self.connections.channel() as ours, other.connections.channel() as theirs, quiet_pika():
            if _identity(ours) != _identity(theirs):
                return False
            try:
                name = ours.queue_declare("", exclusive=True, auto_delete=True).method.queue
            except exceptions.ChannelClosedByBroker as error:
                raise ConfigurationError(
                    f"{self.broker.label} and {other.broker.label} may be one broker, and its user may not declare the "
                    f"queue that would tell ({reason_of(error)}); name the broker alike in both URLs, or grant the "
                    "configure permission for amq\\.gen.*"
                ) from None
            try:
                theirs.queue_declare(name, passive=True)
            except exceptions.ChannelClosedByBroker as error:
                return bool(error.reply_code != _NOT_FOUND)  # another connection's exclusive queue is locked
            return True

    def shares_queues(self, other: "Place") -> bool:
        """Whether a level queue of one has the name of a level queue of the other."""
        return not set(self.queues).isdisjoint(other.queues)

    def require_no_part(self, queue: str) -> None:
        """ConfigurationError for a poison queue that is a part of the cascade."""
        layout = self.cascade.layout()
        if any(
            queue == part.name for part in (*layout.queues, *layout.exchanges) if isinstance(part, Queue | Exchange)
        ):
            raise ConfigurationError(f"the poison queue {queue!r} is a part of the cascade {self.name}; name another")

    def close(self) -> None:
        """Close the connections; may be called twice."""
        with self._lock:
            owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()
        super().close()

    def _running_owner(self) -> Owner:
        with self._lock:
            if self._owner is None or not self._owner.alive:
                self._owner = Owner(self.broker, RawConnection)
            return self._owner


def _identity(channel: Any) -> tuple[Any, str]:
    impl = channel.connection._impl
    return impl.server_properties.get("cluster_name"), impl.params.virtual_host
