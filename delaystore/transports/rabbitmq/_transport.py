"""The transport for RabbitMQ, and the queues that it declares once there is a broker."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from typing_extensions import override

from delaystore.errors import (
    ConfigurationError,
    TransportError,
    TransportSetupError,
    TransportUnavailableError,
    UnsupportedMessageError,
)
from delaystore.message import DelayedMessage
from delaystore.processes import renew_in_children
from delaystore.stores.abc import DelayedMessageStore
from delaystore.text import DEFAULT_EXCHANGE, named_queue, parse_address
from delaystore.transports.abc import OpenQueue, Outcome, OutcomeKind, ReceivedMessage, Transport
from delaystore.transports.rabbitmq._open_queue import open_queue
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.native import CascadeDelay, NativeDelay, delay_named
from delaystore.transports.rabbitmq.parameters import Broker, broker_from_url, take_parameter
from delaystore.transports.rabbitmq.properties import check_message
from delaystore.transports.rabbitmq.publication import Publication, publication_of
from delaystore.transports.rabbitmq.publisher import LOOK_SECONDS, BatchPublisher, look_at_all
from delaystore.transports.rabbitmq.queues import (
    QUEUE_TYPES,
    QueueAvailability,
    declare_queue,
    delete_queue,
    exists,
    look_at,
    receive,
)
from delaystore.transports.rabbitmq.topology import CascadeTopology, Exchange

_AGAIN: Final = 30.0
"""Seconds until a queue that the broker refused is declared again."""

log = logging.getLogger(__name__)


class WantedQueues:
    """Has each of `names` declared once, by `declare`, which creates no queue that exists.

    Threads may share it. Raises ConfigurationError for names that cannot be.
    """

    def __init__(self, names: Iterable[str], declare: Callable[[str], None]) -> None:
        if isinstance(names, str):
            raise ConfigurationError(f"queues must be a list of names, as in queues=[{names!r}]")
        try:
            self._missing = dict.fromkeys((named_queue(name) for name in names), 0.0)
        except TransportSetupError as error:
            raise ConfigurationError(f"queues: {error}") from None
        self._declare = declare

    def ensure(self) -> None:
        """Declare the queues that are not declared yet; a refusal of the broker's is logged. Raises
        TransportUnavailableError.
        """
        for name, not_before in tuple(self._missing.items()):
            if time.monotonic() < not_before:
                continue
            try:
                self._declare(name)
            except TransportSetupError as error:
                self._missing[name] = time.monotonic() + _AGAIN
                log.warning("%s; will retry in %.0f s", error, _AGAIN)
            else:
                self._missing.pop(name, None)


_SHORT_TIMEOUTS: Final = {"heartbeat": 2, "socket_timeout": 3, "stack_timeout": 4}
"""Seconds. Messages are claimed while their native delay is prepared, so outages are noticed soon."""
_DEFAULT_TYPE: Final = "quorum"
PREPARING: Final = 10.0
"""Seconds for each answer meanwhile: declaring a queue takes a busy broker some."""


class RabbitMQTransport(Transport):
    """Publishes to RabbitMQ queues and exchanges, with pipelined publisher confirms and `mandatory`.

    A thread `delaystore-rabbitmq ...` owns the connection. It starts at the first use, and again in a forked child.

    Args:
        url: `amqp[s]://user:password@host:port,host:port/vhost`, or several of them for the hosts of one broker; see
            `broker_from_url`. The hosts, and each address of each, are tried in turn, from a random one on.
        ca_file: PEM file of the authority that signed the broker's certificate, for amqps://.
        client_certificate: PEM file with the client's certificate.
        client_key: PEM file with its key.
        heartbeat: Seconds; 0 for none. None: as the broker proposes.
        connection_name: How the broker's management shows the connection.
        queue_type: The type of queue that `declare` creates, quorum or classic. None: as the URL's query parameter
            `queue_type` says, by default quorum.
        queues: Queues to declare before the first message, once there is a broker. So a program starts while the broker
            is down. A queue that may not be created is logged, and tried again.
        delays: How RabbitMQ delays natively, a cascade or another `NativeDelay`. None: as the URL's query parameter
            `delays` says (see `delay_named`), by default not at all.

    Raises:
        ConfigurationError: The URL or a file cannot work.

    Example:
        ```python
        transport = RabbitMQTransport("amqp://user:password@broker/vhost", queues=["billing"])
        with DelayedDelivery("sales", open_store("sqlite:///app.db"), transport) as delivery:
            delivery.start()
            delivery.send("billing", b"{}", delay=60)
        ```

    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        ca_file: str | None = None,
        client_certificate: str | None = None,
        client_key: str | None = None,
        heartbeat: int | None = None,
        connection_name: str | None = None,
        queue_type: str | None = None,
        queues: Sequence[str] = (),
        delays: CascadeTopology | NativeDelay | None = None,
    ) -> None:
        urls, named = _without([url] if isinstance(url, str) else url, "delays")
        urls, named_type = _without(urls, "queue_type")
        self._broker = broker_from_url(
            urls,
            ca_file=ca_file,
            client_certificate=client_certificate,
            client_key=client_key,
            heartbeat=heartbeat,
            connection_name=connection_name,
        )
        self._queue_type = _checked_type(
            next(each for each in (queue_type, named_type, _DEFAULT_TYPE) if each is not None)
        )
        if delays is None and named is not None:
            delays = delay_named(named)
        self._delays = CascadeDelay(delays) if isinstance(delays, CascadeTopology) else delays
        self._blocking = BlockingConnections(self._broker)
        self._preparing = BlockingConnections(self._broker, answer=PREPARING, **_SHORT_TIMEOUTS)
        self._looking = BlockingConnections(self._broker, answer=LOOK_SECONDS, **_SHORT_TIMEOUTS)
        self._wanted = WantedQueues(queues, lambda queue: declare_queue(self._preparing, queue, self._queue_type))
        self._publisher = BatchPublisher(self._broker, partial(look_at_all, self._looking))
        renew_in_children(self, RabbitMQTransport._forget)

    def __repr__(self) -> str:
        return f"<RabbitMQTransport {self._broker.label}>"

    @property
    def broker(self) -> Broker:
        """Its broker, for code that reads queues on connections of its own."""
        return self._broker

    @override
    def send(
        self,
        messages: Sequence[DelayedMessage],
        transaction: DelayedMessageStore | None,
        timeout: float,
    ) -> Sequence[Outcome]:
        """Publish `messages` and wait for the broker's confirms; see `Transport.send`.

        UNROUTABLE: no such queue or exchange, or no binding. REFUSED: nacked by a queue that is full, or the message
        closed its channel. UNAVAILABLE: nacked otherwise (a queue without a leader), returned by a queue whose node is
        down, or no confirm although the broker lives. UNCONFIRMED: an outage, or an alarm of the broker.
        """
        try:
            self._wanted.ensure()
        except TransportUnavailableError as error:
            return [Outcome(OutcomeKind.UNCONFIRMED, str(error))] * len(messages)
        return self._publisher.publish([publication_of(message) for message in messages], timeout)

    @property
    @override
    def longest_native_delay(self) -> timedelta | None:
        return None if self._delays is None else self._delays.maximum

    @override
    def send_delayed(self, messages: Sequence[DelayedMessage], now: datetime, timeout: float) -> Sequence[Outcome]:
        """Publish `messages` into the native delay; see `Transport.send_delayed`.

        Its parts are declared when they are first needed. They carry NServiceBus' headers TimeSent and DelayInSeconds,
        and no expiration, which would shorten the delay: it goes into the header delaystore.expiration.
        NOT_DELAYABLE: also if the destination's queue does not exist, or the user may not declare the native delay.
        """
        if self._delays is None:
            return super().send_delayed(messages, now, timeout)
        try:
            self._wanted.ensure()
            publications = self._delays.publications(self._preparing, messages, now)
        except TransportUnavailableError as error:
            return [Outcome(OutcomeKind.UNCONFIRMED, str(error))] * len(messages)
        except TransportError as error:
            return [Outcome(OutcomeKind.NOT_DELAYABLE, str(error))] * len(messages)
        outcomes = self._publisher.publish(publications, timeout)
        return [
            self._of_native_delay(outcome) if isinstance(one, Publication) else outcome
            for one, outcome in zip(publications, outcomes, strict=True)
        ]

    @override
    def declare(self, queue: str, *, queue_type: str | None = None) -> None:
        """Create the durable queue if none of that name exists, of any type.

        Args:
            queue: A name, or `/queues/NAME`.
            queue_type: The type that it must have, also if it exists. None: the transport's type, for a new queue only.

        Raises:
            TransportSetupError: The broker refuses it. The text has the broker's reason.
            ConfigurationError: There is no such type.
            TransportUnavailableError: The broker cannot be reached.

        """
        if queue_type is None:
            declare_queue(self._blocking, queue, self._queue_type)
        else:
            declare_queue(self._blocking, queue, _checked_type(queue_type), whatever_exists=False)

    @override
    def declare_error_queue(self, queue: str) -> None:
        """As `declare`; from RabbitMQ 4 on with a delivery limit that is never reached, in place of 20.

        The queues that the transport was made with are declared, too.
        """
        self._wanted.ensure()
        declare_queue(self._blocking, queue, self._queue_type, lift_limit=True)

    def delete(self, queue: str) -> None:
        """Delete a queue and the messages in it. Nothing happens if it does not exist.

        Args:
            queue: A name, or `/queues/NAME`.

        Raises:
            TransportSetupError: The broker refuses it. The text has the broker's reason.
            TransportUnavailableError: The broker cannot be reached.

        """
        delete_queue(self._blocking, queue)

    @override
    def receive(
        self, queue: str, limit: int = 1, timeout: float = 0
    ) -> AbstractContextManager[Sequence[ReceivedMessage]]:
        """Take up to `limit` messages; see `Transport.receive`. The block has about two minutes.

        Raises TransportError for a queue that is missing or may not be read, TransportUnavailableError.
        """
        return receive(self._blocking, queue, limit, timeout)

    @override
    def open_queue(self, queue: str) -> AbstractContextManager[OpenQueue]:
        """Take messages of `queue`; see `Transport.open_queue`. Between two calls there may be about two minutes.

        A message that a quorum queue may soon drop, since it was given back so often, is put at its end again.
        Raises TransportError for a queue that is missing, may not be read, or drops returned messages;
        TransportUnavailableError.
        """
        return open_queue(self._blocking, queue)

    @override
    def depth(self, queue: str) -> int | None:
        """How many messages of `queue` are ready; None: there is no such queue, or it is down.

        Raises TransportSetupError for a name that is no queue, TransportUnavailableError.
        """
        look = look_at(self._looking, named_queue(queue))
        return look.ready if look.availability is QueueAvailability.THERE else None

    @override
    def reaches(self, destination: str) -> bool | None:
        """Whether there is such a queue; None for an exchange: its bindings are unknown. Takes at most two seconds."""
        try:
            address = parse_address(destination)
        except UnsupportedMessageError:
            return False
        if address.exchange == DEFAULT_EXCHANGE:
            availability = look_at(self._looking, address.routing_key).availability
            return {QueueAvailability.THERE: True, QueueAvailability.MISSING: False}.get(availability)
        try:
            return None if exists(self._looking, Exchange(address.exchange)) else False
        except TransportSetupError:
            return None

    @override
    def check(self, message: DelayedMessage) -> None:
        """Raise UnsupportedMessageError for what AMQP, pika or RabbitMQ would change or refuse; see `check_message`."""
        check_message(message)

    @override
    def unavailable(self) -> str | None:
        """Why nothing can be sent at present: connecting, not reachable, login refused, blocked by an alarm."""
        return self._publisher.owner().obstacle

    @override
    def close(self) -> None:
        """Close the connections; sends under way end as UNCONFIRMED. May be called twice, and followed by more use."""
        self._publisher.close()
        self._blocking.close()
        self._preparing.close()
        self._looking.close()

    def _of_native_delay(self, outcome: Outcome) -> Outcome:
        """`outcome` of a native delay as `send_delayed` returns it: a failure there is not the message's fault."""
        if outcome.kind is OutcomeKind.REFUSED:
            return Outcome(OutcomeKind.NOT_DELAYABLE, f"the native delay refuses it: {outcome.reason}")
        if outcome.kind is not OutcomeKind.UNROUTABLE or self._delays is None:
            return outcome
        self._delays.forget()
        return Outcome(
            OutcomeKind.UNCONFIRMED, f"the native delay is incomplete, and will be declared: {outcome.reason}"
        )

    def _forget(self) -> None:
        """In a forked child: thread and sockets are the parent's."""
        self._publisher.forget_after_fork()
        self._blocking.forget_after_fork()
        self._preparing.forget_after_fork()
        self._looking.forget_after_fork()


def _without(urls: Sequence[str], parameter: str) -> tuple[Sequence[str], str | None]:
    """`urls` without a query parameter, and its value; None: none has it."""
    taken = [take_parameter(url, parameter) for url in urls]
    values = {value for _, value in taken if value is not None}
    if len(values) > 1:
        raise ConfigurationError(f"the AMQP URLs differ in their parameter {parameter}; give it once")
    return [url for url, _ in taken], next(iter(values), None)


def _checked_type(queue_type: str) -> str:
    if queue_type not in QUEUE_TYPES:
        raise ConfigurationError(f"queue_type must be one of {', '.join(QUEUE_TYPES)}, not {queue_type!r}")
    return queue_type
