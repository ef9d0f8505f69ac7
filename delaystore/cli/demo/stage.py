"""Where the demo plays: a store, a transport, and names of its own in both."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, runtime_checkable

from delaystore.cli.opening import Target
from delaystore.cli.output import say
from delaystore.delivery import DelayedDelivery
from delaystore.errors import DelaystoreError
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Transport


@runtime_checkable
class RemovableStore(Protocol):
    """A store that can drop its tables."""

    def remove_infrastructure(self) -> None:
        """Drop them, and all that waits."""
        ...


@runtime_checkable
class DeletingTransport(Protocol):
    """A transport that can delete queues."""

    def delete(self, queue: str) -> None:
        """Delete `queue` and what is in it; nothing happens if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Stage:
    """What the demo plays with."""

    store: DelayedMessageStore
    transport: Transport
    delivery: DelayedDelivery
    queue: str
    exactly_once: bool


@contextmanager
def set_stage(store_url: str | None, transport_url: str | None, schema: str | None) -> Iterator[Stage]:
    """A stage with names that nobody else has; cleared at the block's end.

    No store: a SQLite file in a temporary directory. No transport: SQL queues in the store's database.
    """
    name = f"delaystore-demo-{uuid.uuid4().hex[:8]}"
    error_queue = f"{name}-error"
    with ExitStack() as stack:
        if store_url is None:
            directory = stack.enter_context(TemporaryDirectory(prefix="delaystore-demo-"))
            store_url = f"sqlite:///{Path(directory) / 'demo.db'}"
        target = Target(
            store=store_url, endpoint=name, schema=schema, transport=transport_url or store_url, memory=True
        )
        store = stack.enter_context(closing(target.open_store()))
        transport = stack.enter_context(closing(target.open_transport()))
        exactly_once = transport.shares_transaction_with(store)
        mode = TransactionMode.TRANSACTION_SCOPE if exactly_once else TransactionMode.RECEIVE_ONLY
        settings = DelayedDeliverySettings(transaction_mode=mode, error_queue=error_queue)
        delivery = DelayedDelivery(name, store, transport, settings)
        stack.callback(_clear, store, transport, (name, error_queue))
        stack.callback(delivery.stop)
        delivery.setup_infrastructure()
        transport.declare(name)
        yield Stage(store, transport, delivery, name, exactly_once)


def _clear(store: DelayedMessageStore, transport: Transport, queues: tuple[str, ...]) -> None:
    """Leave nothing behind, where that can be done; a server that is gone by now is no reason to hide the report."""
    try:
        if isinstance(store, RemovableStore):
            store.remove_infrastructure()
        if isinstance(transport, DeletingTransport):
            for queue in queues:
                transport.delete(queue)
    except DelaystoreError as error:
        say(f"warning: the demo's tables and queues could not be removed: {error}")
