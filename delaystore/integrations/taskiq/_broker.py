"""taskiq's RabbitMQ broker, with a store for what is delayed."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from taskiq import BrokerMessage
from taskiq_aio_pika import AioPikaBroker
from typing_extensions import override

from delaystore.integrations.taskiq._keeping import Delivery, Transaction, keep, keep_in_transaction
from delaystore.integrations.taskiq._publishing import published

DELAY: Final = "delay"
"""The label with the seconds to wait, taskiq-aio-pika's own."""


class StoringAioPikaBroker(AioPikaBroker):
    """An AioPikaBroker for which tasks with the label `delay` (seconds) wait in the store of `delivery`.

    Their message_id there is the task's id. At its due time a task arrives as this broker would have published it
    without a delay, so workers need not know of the store. A DelayedDelivery is called in a thread, an
    AsyncDelayedDelivery awaited. `url` and `options`: AioPikaBroker's; no delay queue is needed.
    """

    def __init__(self, delivery: Delivery, url: str | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._delivery = delivery
        self._transaction: ContextVar[Transaction | None] = ContextVar("transaction", default=None)

    @contextmanager
    def messages_in(self, connection_or_session: Any) -> Iterator[None]:
        """Within the block, whatever is kicked is part of that transaction: if it is rolled back, nothing is sent.

        This includes tasks without a delay, which are due at once. Takes what the delivery's `enlist` takes, and raises
        what that raises; with a DelayedDelivery the statements run in the event loop's thread, as the session's do.
        """
        token = self._transaction.set(self._delivery.enlist(connection_or_session))
        try:
            yield
        finally:
            self._transaction.reset(token)

    @override
    async def kick(self, message: BrokerMessage) -> None:
        """As AioPikaBroker's. Raises what `send` raises, which `kiq` raises as SendTaskError."""
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
