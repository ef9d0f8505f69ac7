"""The demo's endpoint: its own tables and queues in the given store and transport."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from delaystore.delivery import DelayedDelivery
from delaystore.errors import DelaystoreError
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Transport


@runtime_checkable
class RemovableStore(Protocol):
    """A store that can drop its tables."""

    def remove_infrastructure(self) -> None:
        """Drop the tables, and all that waits in them."""
        ...


@runtime_checkable
class DeletingTransport(Protocol):
    """A transport that can delete queues."""

    def delete(self, queue: str) -> None:
        """Delete `queue` and what is in it; does nothing if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class DemoEndpoint:
    """A store, a transport, and what the demo has there. `exactly_once`: whether the two share a database."""

    store: DelayedMessageStore
    transport: Transport
    delivery: DelayedDelivery
    queue: str
    exactly_once: bool


@contextmanager
def demo_endpoint(
    store: DelayedMessageStore, transport: Transport, warn: Callable[[str], object]
) -> Iterator[DemoEndpoint]:
    """An endpoint and a queue, set up under a name that nobody else has; both are removed after the block.

    `warn`: told what could not be removed.
    """
    name = f"delaystore-demo-{uuid.uuid4().hex[:8]}"
    error_queue = f"{name}-error"
    with ExitStack() as stack:
        exactly_once = transport.shares_transaction_with(store)
        mode = TransactionMode.TRANSACTION_SCOPE if exactly_once else TransactionMode.RECEIVE_ONLY
        settings = DelayedDeliverySettings(transaction_mode=mode, error_queue=error_queue)
        delivery = DelayedDelivery(name, store, transport, settings)
        stack.callback(_remove, store, transport, (name, error_queue), warn)
        stack.callback(delivery.stop)
        delivery.setup_infrastructure()
        transport.declare(name)
        yield DemoEndpoint(store, transport, delivery, name, exactly_once)


def _remove(
    store: DelayedMessageStore, transport: Transport, queues: tuple[str, ...], warn: Callable[[str], object]
) -> None:
    """Remove tables and queues; what cannot be removed is warned of, so that the report is shown all the same."""
    try:
        if isinstance(store, RemovableStore):
            store.remove_infrastructure()
        if isinstance(transport, DeletingTransport):
            for queue in queues:
                transport.delete(queue)
    except DelaystoreError as error:
        warn(f"warning: the demo's tables and queues could not be removed: {error}")
