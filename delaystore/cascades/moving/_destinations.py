"""Whether a copy reaches its destination on the target; the destination is bound there before anything is sent."""

import threading
from typing import Final

import pika
from pika import exceptions

from delaystore.errors import TransportSetupError, UnsupportedMessageError
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.declaring import declare_part
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.queues import exists
from delaystore.transports.rabbitmq.topology.cascades import CascadeTopology, Routing
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Queue

_NOBODY: Final = "delaystore.nobody"
"""A queue that does not exist: what is sent to it is dropped."""


class Destinations:
    """The destinations on a target, each looked up once; may be shared by threads.

    `bind`: True: bind each destination. False: only check whether it exists.
    """

    def __init__(
        self,
        connections: BlockingConnections,
        cascade: CascadeTopology,
        routing: Routing,
        own_user: str | None,
        *,
        bind: bool,
    ) -> None:
        self._connections = connections
        self._cascade = cascade
        self._routing = routing
        self._bind = bind
        self._lock = threading.Lock()
        self._destinations: dict[str, str | None] = {}
        self._users: dict[str | None, str | None] = {own_user: None}

    def destination(self, address: str) -> str | None:
        """Why no copy can reach `address`; None: it can.

        Raises TransportSetupError where the user may not bind or check, TransportUnavailableError.
        """
        with self._lock:
            if address not in self._destinations:
                self._destinations[address] = self._look_up(address)
            return self._destinations[address]

    def user(self, name: str) -> str | None:
        """Why no message of the user `name` can be sent; None: it can. Raises TransportUnavailableError."""
        with self._lock:
            if name not in self._users:
                self._users[name] = self._try_user(name)
            return self._users[name]

    def _look_up(self, address: str) -> str | None:
        try:
            bindings = self._cascade.destination_bindings(address, self._routing)
        except UnsupportedMessageError as error:
            return str(error)
        for binding in bindings:
            kind = Queue if binding.kind is DestinationKind.QUEUE else Exchange
            if not exists(self._connections, kind(binding.destination)):
                return f"no {binding.kind} {binding.destination!r} to bind to the target"
        if self._bind:
            for binding in bindings:
                self._declare(binding)
        return None

    def _declare(self, binding: Binding) -> None:
        try:
            with self._connections.channel() as channel, quiet_pika():
                declare_part(channel, binding)
        except exceptions.ChannelClosedByBroker as error:
            raise TransportSetupError(
                f"{binding.kind} {binding.destination!r} cannot be bound to {binding.source!r}: {reason_of(error)}; "
                "grant write on it and read on the exchange, or bind it yourself"
            ) from None

    def _try_user(self, name: str) -> str | None:
        """RabbitMQ takes the user_id of somebody else only from users with the tag impersonator."""
        try:
            with self._connections.channel() as channel, quiet_pika():
                channel.basic_publish("", _NOBODY, b"", pika.BasicProperties(user_id=name))
                channel.basic_qos(prefetch_count=1)  # its answer shows that the broker took what was sent before
        except exceptions.ChannelClosedByBroker as error:
            return f"its property user_id is another's: {reason_of(error)}"
        return None
