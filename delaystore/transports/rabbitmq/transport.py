"""The RabbitMQ transport."""

import os
import threading
import weakref
from collections.abc import Sequence

from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Outcome, Transport
from delaystore.transports.rabbitmq.owner import Owner
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.publisher import Sending


class RabbitMQTransport(Transport):
    """Publishes to RabbitMQ queues and exchanges, with publisher confirms, pipelined, and `mandatory`.

    `url`: `amqp[s]://user:password@host:port/vhost`; see `broker_from_url` for its query parameters.
    `ca_file`, `client_certificate`, `client_key`: PEM files for amqps://.
    `heartbeat`: seconds, 0 for none. `connection_name`: how the broker's management shows the connection.

    A thread `delaystore-rabbitmq ...` owns the connection; it starts at the first use, and afresh in a forked child.
    Raises ConfigurationError for a URL or file that cannot work.
    """

    def __init__(
        self,
        url: str,
        *,
        ca_file: str | None = None,
        client_certificate: str | None = None,
        client_key: str | None = None,
        heartbeat: int | None = None,
        connection_name: str | None = None,
    ) -> None:
        self._broker = broker_from_url(
            url,
            ca_file=ca_file,
            client_certificate=client_certificate,
            client_key=client_key,
            heartbeat=heartbeat,
            connection_name=connection_name,
        )
        self._lock = threading.Lock()
        self._quarantine = threading.Lock()
        self._owner: Owner | None = None
        _transports.add(self)

    def __repr__(self) -> str:
        return f"<RabbitMQTransport {self._broker.label}>"

    def send(
        self,
        messages: Sequence[DelayedMessage],
        transaction: DelayedMessageStore | None,  # noqa: ARG002 - RabbitMQ shares no store's transaction
        timeout: float,
    ) -> Sequence[Outcome]:
        """Publish `messages` and wait for the broker's confirms; see `Transport.send`.

        UNROUTABLE: no such queue or exchange, or no binding. REFUSED: nacked, or the message closed its channel.
        UNSETTLED: an outage, an alarm of the broker, or no confirm within `timeout` seconds.
        """
        return Sending(messages, timeout, self._running_owner, self._quarantine).run()

    def unavailable(self) -> str | None:
        """Why nothing can be sent at present: connecting, not reachable, login refused, blocked by an alarm."""
        return self._running_owner().obstacle

    def close(self) -> None:
        """Close the connections; sends under way end as UNSETTLED. May be called twice, and followed by more use."""
        with self._lock:
            owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()

    def _running_owner(self) -> Owner:
        with self._lock:
            if self._owner is None or not self._owner.alive:
                self._owner = Owner(self._broker)
            return self._owner

    def _forget(self) -> None:
        """In a forked child: the thread is the parent's, and so is what is said on its sockets."""
        self._lock = threading.Lock()
        self._quarantine = threading.Lock()
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.disown()


_transports: "weakref.WeakSet[RabbitMQTransport]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for transport in list(_transports):
        transport._forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
