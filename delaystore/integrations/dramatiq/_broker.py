"""A Dramatiq broker whose delayed messages are kept in the store."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final

from dramatiq.broker import MessageProxy
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.common import current_millis, dq_name
from dramatiq.errors import ConnectionClosed, DecodeError
from dramatiq.message import Message
from typing_extensions import override

from delaystore.delivery import DelayedDelivery, EnlistedDelivery
from delaystore.errors import ConfigurationError, DelaystoreError, DuplicateMessageError, MessageBeingDispatchedError
from delaystore.integrations._taken import waits_already
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.records import Way


def keep_in_transaction(transaction: EnlistedDelivery, message: Message[Any], delay: float) -> None:
    """Store the message in the caller's transaction, `delay` in seconds. Raises the errors of `send`."""
    transaction.send(
        message.queue_name,
        message.encode(),
        delay=delay,
        properties=_properties(message),
        message_id=message.message_id,
    )


def keep(delivery: DelayedDelivery, message: Message[Any], delay: float) -> None:
    """Store the message, unless it waits already; `delay` in seconds. Raises the errors of `send`.

    Dramatiq enqueues a retry under the id of the message that failed: see `_taken.py`.
    """
    body, properties = message.encode(), _properties(message)
    try:
        delivery.send(message.queue_name, body, delay=delay, properties=properties, message_id=message.message_id)
    except MessageBeingDispatchedError:
        delivery.send(message.queue_name, body, delay=delay, properties=properties)
    except DuplicateMessageError:
        if not _waits(delivery, message, body, delay):
            delivery.send(message.queue_name, body, delay=delay, properties=properties)


def _waits(delivery: DelayedDelivery, message: Message[Any], body: bytes, delay: float) -> bool:
    """Whether the store has this message or a later retry of it, which no dispatcher has claimed; due as this is."""
    found = delivery.get(message.message_id)
    if not waits_already(found, body, message.options.get("retries", 0), lambda other: _retries(other.body)):
        return False
    outcome = delivery.changes_as(Way.DRAMATIQ).reschedule(message.message_id, delay=delay)
    return outcome is ManagementOutcome.DONE


def _retries(body: bytes) -> int:
    try:
        retries: int = Message.decode(body).options.get("retries", 0)
    except DecodeError:
        return 0
    return retries


def _properties(message: Message[Any]) -> Mapping[str, Any]:
    """As RabbitmqBroker's; a stored message is persistent anyway."""
    priority = message.options.get("broker_priority")
    return {} if priority is None else {"priority": priority}


logger = logging.getLogger("delaystore.dramatiq")
THRESHOLD: Final = timedelta(seconds=1)


class StoringRabbitmqBroker(RabbitmqBroker):
    """A RabbitmqBroker whose delayed messages wait in a store, retries too.

    Their message_id there is Dramatiq's. At its due time a message arrives in its queue as `enqueue` without a delay
    would have published it, so workers need not know of the store.

    Args:
        delivery: Keeps the messages.
        threshold: Shorter delays stay with Dramatiq's own delay queues.
        **options: As of RabbitmqBroker.

    Raises:
        ConfigurationError: The threshold is negative.

    Example:
        ```python
        broker = StoringRabbitmqBroker(DelayedDelivery("shop", store), url="amqp://broker")
        dramatiq.set_broker(broker)
        remind.send_with_options(args=(7,), delay=3 * 24 * 3600 * 1000)
        ```

    """

    def __init__(self, delivery: DelayedDelivery, *, threshold: timedelta = THRESHOLD, **options: Any) -> None:
        if threshold < timedelta(0):
            raise ConfigurationError(f"threshold={threshold} is negative; use timedelta(0) to store every delay")
        super().__init__(**options)
        self._delivery = delivery
        self._threshold = threshold.total_seconds()
        self._transaction: ContextVar[EnlistedDelivery | None] = ContextVar("transaction", default=None)
        self._declared: set[str] = set()

    @contextmanager
    def messages_in(self, connection_or_session: Any) -> Iterator[None]:
        """Enqueue messages in your own transaction, within the block: if it is rolled back, nothing is sent.

        This includes messages without a delay, which are due at once.

        Args:
            connection_or_session: As `transaction` of `DelayedDelivery.enlist`, whose errors are raised.

        """
        token = self._transaction.set(self._delivery.enlist(connection_or_session))
        try:
            yield
        finally:
            self._transaction.reset(token)

    @override
    def enqueue(self, message: Message[Any] | MessageProxy, *, delay: int | None = None) -> Message[Any]:
        """As RabbitmqBroker's; `delay` in milliseconds.

        A message that the store does not take goes into Dramatiq's delay queue, with a warning in the log: Dramatiq
        acknowledges a failed message even when its retry could not be enqueued. In a transaction the store's error is
        raised instead.
        """
        transaction = self._transaction.get()
        if transaction is not None:
            announced = self._announced(message, delay)
            keep_in_transaction(transaction, _as_published(announced, message.queue_name), _seconds(delay))
            self.emit_after("enqueue", announced, delay)
            return announced
        if delay is None or _seconds(delay) < self._threshold:
            return super().enqueue(message, delay=delay)  # type: ignore[arg-type]  # Dramatiq passes proxies, too
        announced = self._announced(message, delay)
        try:
            keep(self._delivery, _as_published(announced, message.queue_name), _seconds(delay))
        except DelaystoreError as error:
            logger.warning("cannot store message %s; it waits in Dramatiq's delay queue: %s", message.message_id, error)
            return super().enqueue(message, delay=delay)  # type: ignore[arg-type]  # as above
        self.emit_after("enqueue", announced, delay)
        return announced

    def _announced(self, message: Message[Any] | MessageProxy, delay: int | None) -> Message[Any]:
        """The message as middleware sees it, which may have changed it: with a delay as in Dramatiq's delay queue."""
        self._declare(message.queue_name)
        announced: Message[Any] = message.copy()
        if delay is not None:
            announced = message.copy(queue_name=dq_name(message.queue_name), options={"eta": current_millis() + delay})
        self.emit_before("enqueue", announced, delay)
        return announced

    def _declare(self, queue_name: str) -> None:
        """Declare the queue, once, as RabbitmqBroker does; storing goes on while RabbitMQ is down."""
        if queue_name in self._declared:
            return
        self._declared.add(queue_name)
        try:
            self.declare_queue(queue_name, ensure=True)
        except ConnectionClosed as error:
            logger.warning("cannot declare the queue %r; its worker will declare it: %s", queue_name, error)


def _as_published(announced: Message[Any], queue_name: str) -> Message[Any]:
    """The message as a worker publishes it when its delay has passed."""
    published = announced.copy(queue_name=queue_name)
    published.options.pop("eta", None)
    return published


def _seconds(delay: int | None) -> float:
    return (delay or 0) / 1000
