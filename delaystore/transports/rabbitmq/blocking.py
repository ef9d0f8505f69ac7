"""Connections for the calling thread: opened to one of a broker's nodes, and kept for the next use."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pika import exceptions
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from delaystore.errors import TransportUnansweredError, TransportUnavailableError
from delaystore.transports.rabbitmq.nodes import Node, failures_text, nodes_of
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.pika_internals import (
    ANSWER,
    PunctualConnection,
    SilenceError,
    answered_within,
    drop,
    drop_socket_of,
)

_NOT_CONNECTED: Final = (exceptions.AMQPError, AMQPConnectorException, OSError)
"""Errors of pika where no connection can be made."""


def open_connection(
    broker: Broker,
    *,
    first: Node | None = None,
    last: Node | None = None,
    answer: float | None = None,
    decoded: bool = False,
    **parameters: int,
) -> PunctualConnection:
    """A connection to one of the broker's nodes, tried in turn; its `node` says which.

    `first`, `last`: see `Nodes.in_turn`. `answer`: see PunctualConnection. `decoded`: messages have pika's
    properties. `parameters`: of pika, in place of the broker's. Raises TransportUnavailableError, which says for
    each node why it could not be reached.
    """
    nodes = nodes_of(broker)
    failures = list(nodes.unknown.items())
    turn = nodes.in_turn(first=first, last=last)
    for node in turn:
        attempt = node.parameters(last=node is turn[-1], **parameters)
        try:
            with quiet_pika():
                return PunctualConnection(attempt, node, answer=answer, decoded=decoded)
        except _NOT_CONNECTED as error:
            failures.append((node.label, reason_of(error, attempt.stack_timeout)))
    raise TransportUnavailableError(f"RabbitMQ at {broker.label} cannot be reached: {failures_text(failures)}")


_HEARTBEAT: Final = 60
"""Seconds. No heartbeat is answered while the caller handles messages, so it has about two minutes for that."""
_IDLE_CONNECTIONS: Final = 4
OPENING: Final = 10
"""Seconds that a broker has to open or close a channel or a connection."""


class BlockingConnections:
    """Connections that one thread at a time uses, kept for the next.

    A new one leads to the node that the last one worked with; if that failed, to any other node first. That an idle one
    has ended is no failure of its node.
    `answer`: seconds that the broker has for each answer; None: ANSWER. `parameters`: of pika, in place of `broker`'s.
    """

    def __init__(self, broker: Broker, *, answer: float | None = None, **parameters: int) -> None:
        self._broker = broker
        self._answer = ANSWER if answer is None else answer
        self._parameters = {"heartbeat": _HEARTBEAT, **parameters}
        self._idle: list[Any] = []
        self._most_idle = _IDLE_CONNECTIONS
        self._worked: Node | None = None
        self._failed: Node | None = None

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A fresh channel for the block, closed after it: unacknowledged messages go back to their queue.

        Raises TransportUnavailableError if there is no connection to be had, or if it is lost within the block, and
        TransportUnansweredError if that is because an answer did not come in time.
        The broker's refusals (pika's ChannelClosedByBroker) pass through. An interrupt drops the connection.
        """
        with quiet_pika():
            connection, channel = self._open_channel()
        try:
            with self._loss_explained(connection):
                yield channel
        except Exception:
            self._put_back(connection, channel)
            raise
        except BaseException:
            drop(connection)  # an interrupt does not wait for an answer that may never come
            raise
        else:
            self._put_back(connection, channel)

    def close(self) -> None:
        """Close idle connections, and from now on each connection after its use; may be called twice."""
        self._most_idle = 0
        with quiet_pika():
            while (connection := self._take()) is not None:
                _close(connection)

    def forget_after_fork(self) -> None:
        """In a forked child: give up the sockets, which stay the parent's."""
        while (connection := self._take()) is not None:
            drop_socket_of(connection)

    def _take(self) -> Any | None:
        """An idle connection, for this caller alone; None: there is none. Atomic, so it needs no lock."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    @contextmanager
    def _loss_explained(self, connection: Any) -> Iterator[None]:
        try:
            yield
        except exceptions.AMQPConnectionError as error:
            if connection.is_open:
                raise  # the caller's own
            problem = TransportUnansweredError if isinstance(error, SilenceError) else TransportUnavailableError
            raise problem(
                f"the connection to RabbitMQ at {connection.node.label} was lost: {reason_of(error)}"
            ) from None

    def _open_channel(self) -> tuple[Any, Any]:
        connection = self._take()
        if connection is not None:
            try:
                with answered_within(connection, OPENING):
                    return connection, connection.channel()
            except SilenceError:
                self._give_up(connection)
            except exceptions.AMQPError:
                _close(connection)  # it ended while it was idle, and no heartbeat was answered: its node may be well
        connection = open_connection(
            self._broker,
            first=self._worked,
            last=self._failed,
            answer=self._answer,
            decoded=True,
            **self._parameters,
        )
        try:
            with answered_within(connection, OPENING):
                channel = connection.channel()
        except exceptions.AMQPError as error:
            self._give_up(connection)
            raise TransportUnavailableError(
                f"RabbitMQ at {connection.node.label} opens no channel: {reason_of(error)}"
            ) from None
        self._worked, self._failed = connection.node, None
        return connection, channel

    def _put_back(self, connection: Any, channel: Any) -> None:
        with quiet_pika():
            try:
                if channel.is_open:
                    with answered_within(connection, OPENING):
                        channel.close()
            except exceptions.AMQPError:
                self._give_up(connection)
                return
            if not connection.is_open:
                self._give_up(connection)
            elif len(self._idle) < self._most_idle:
                self._idle.append(connection)
            else:
                _close(connection)

    def _give_up(self, connection: Any) -> None:
        """Note that the node of `connection` failed. Its idle connections have died as well, or would be waited for."""
        _close(connection)
        self._worked, self._failed = None, connection.node
        kept = []
        while (idle := self._take()) is not None:
            if idle.node == connection.node:
                drop(idle)
            else:
                kept.append(idle)
        self._idle.extend(kept)


def _close(connection: Any) -> None:
    try:
        if connection.is_open:
            with answered_within(connection, OPENING):
                connection.close()
    except exceptions.AMQPError:
        drop_socket_of(connection)
