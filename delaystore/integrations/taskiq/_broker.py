"""A taskiq broker whose delayed tasks are kept in the store."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import Any, Final
from urllib.parse import quote

from aio_pika.abc import AbstractMessage
from taskiq import BrokerMessage
from taskiq_aio_pika import AioPikaBroker
from typing_extensions import override

from delaystore.delivery import AsyncDelayedDelivery, AsyncEnlistedDelivery, DelayedDelivery, EnlistedDelivery
from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError
from delaystore.integrations._taken import waits_already
from delaystore.message import DelayedMessage
from delaystore.processes import in_thread
from delaystore.stores.abc import ManagementOutcome


@dataclass(frozen=True, slots=True)
class Published:
    """The parts of a message. `destination`: the address of an exchange with a routing key."""

    message_id: str
    destination: str
    body: bytes
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]


async def published(broker: AioPikaBroker, message: BrokerMessage, delay: str) -> Published:
    """The message that `broker` would publish at once for `message`, whose label `delay` stays among the headers only.

    AioPikaBroker itself says so: it kicks the task into a channel that keeps it. Raises the errors of `kick`.
    """
    labels = {name: value for name, value in message.labels.items() if name != delay}
    channel = _Channel()
    publisher = copy(broker)
    publisher.write_channel = channel  # type: ignore[assignment]  # it has all that `kick` asks for
    await AioPikaBroker.kick(publisher, message.model_copy(update={"labels": labels}))
    assert channel.message is not None
    kept = {name: value for name, value in message.labels.items() if name == delay}
    priority = channel.message.priority
    return Published(
        message_id=message.task_id,
        destination=f"/exchanges/{quote(channel.exchange, safe='')}/{quote(channel.routing_key, safe='')}",
        body=channel.message.body,
        headers={**channel.message.headers, **kept},
        properties={} if priority is None else {"priority": priority},
    )


class _Channel:
    """In the place of a channel and its exchange: keeps published messages."""

    def __init__(self) -> None:
        self.exchange = ""
        self.routing_key = ""
        self.message: AbstractMessage | None = None

    async def get_exchange(self, name: str, **_: Any) -> "_Channel":
        self.exchange = name
        return self

    async def publish(self, message: AbstractMessage, routing_key: str, **_: Any) -> None:
        self.message, self.routing_key = message, routing_key


RETRIES: Final = "_retries"
"""The label in which taskiq's middleware counts."""
Delivery = DelayedDelivery | AsyncDelayedDelivery
Transaction = EnlistedDelivery | AsyncEnlistedDelivery


async def keep_in_transaction(transaction: Transaction, task: Published, delay: float) -> None:
    """Store the task in the caller's transaction, `delay` in seconds. Raises the errors of `send`."""
    sent = transaction.send(task.destination, task.body, message_id=task.message_id, **_options(task, delay))
    if isawaitable(sent):
        await sent


async def keep(delivery: Delivery, task: Published, delay: float) -> None:
    """Store the task, unless it waits already; `delay` in seconds. Raises the errors of `send`.

    taskiq kicks a retry under the id of the task that failed: see `_taken.py`.
    """
    options = _options(task, delay)
    try:
        await _call(delivery, delivery.send, task.destination, task.body, message_id=task.message_id, **options)
    except MessageBeingDispatchedError:
        await _call(delivery, delivery.send, task.destination, task.body, **options)
    except DuplicateMessageError:
        if not await _waits(delivery, task, delay):
            await _call(delivery, delivery.send, task.destination, task.body, **options)


async def _waits(delivery: Delivery, task: Published, delay: float) -> bool:
    """Whether the store has this task or a later retry of it, which no dispatcher has claimed; due as this is."""
    found: DelayedMessage | None = await _call(delivery, delivery.get, task.message_id)
    if not waits_already(found, task.body, _retries(task.headers), lambda other: _retries(other.headers)):
        return False
    outcome = await _call(delivery, delivery.reschedule, task.message_id, delay=delay)
    return outcome is ManagementOutcome.DONE


async def _call(delivery: Delivery, operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call an operation of `delivery`."""
    if isinstance(delivery, DelayedDelivery):
        return await in_thread("delaystore-taskiq", partial(operation, *arguments, **options))
    return await operation(*arguments, **options)


def _retries(headers: Mapping[str, Any]) -> int:
    try:
        return int(headers.get(RETRIES, 0))
    except (TypeError, ValueError):
        return 0


def _options(task: Published, delay: float) -> dict[str, Any]:
    return {"delay": delay, "headers": task.headers, "properties": task.properties}


DELAY: Final = "delay"
"""The label with the seconds to wait, taskiq-aio-pika's own."""


class StoringAioPikaBroker(AioPikaBroker):
    """An AioPikaBroker for which tasks with the label `delay` (seconds) wait in a store.

    Their message_id there is the task's id. At its due time a task arrives as this broker would have published it
    without a delay, so workers need not know of the store.

    Args:
        delivery: Keeps the tasks. A DelayedDelivery is called in a thread, an AsyncDelayedDelivery awaited.
        url: As of AioPikaBroker.
        **options: As of AioPikaBroker. No delay queue is needed.

    Example:
        ```python
        broker = StoringAioPikaBroker(AsyncDelayedDelivery("shop", store), "amqp://broker")
        await remind.kicker().with_labels(delay=3 * 24 * 3600).kiq(7)
        ```

    """

    def __init__(self, delivery: Delivery, url: str | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._delivery = delivery
        self._transaction: ContextVar[Transaction | None] = ContextVar("transaction", default=None)

    @contextmanager
    def messages_in(self, connection_or_session: Any) -> Iterator[None]:
        """Kick tasks in your own transaction, within the block: if it is rolled back, nothing is sent.

        This includes tasks without a delay, which are due at once. With a DelayedDelivery the statements run in the
        event loop's thread, as the session's do.

        Args:
            connection_or_session: As `transaction` of the delivery's `enlist`, whose errors are raised.

        """
        token = self._transaction.set(self._delivery.enlist(connection_or_session))
        try:
            yield
        finally:
            self._transaction.reset(token)

    @override
    async def kick(self, message: BrokerMessage) -> None:
        """As AioPikaBroker's. Raises the errors of `send`, which `kiq` raises as SendTaskError."""
        delay = _delay(message)
        transaction = self._transaction.get()
        if transaction is not None:
            await keep_in_transaction(transaction, await published(self, message, DELAY), delay or 0)
        elif delay is None:
            await super().kick(message)
        else:
            await keep(self._delivery, await published(self, message, DELAY), delay)


def _delay(message: BrokerMessage) -> float | None:
    """In seconds; None for no label, and for one that is no number, as in taskiq-aio-pika."""
    try:
        return max(float(message.labels[DELAY]), 0)
    except (KeyError, TypeError, ValueError):
        return None
