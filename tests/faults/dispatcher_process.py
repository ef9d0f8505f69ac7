"""A dispatcher in a process of its own, made to be killed. Run by `DispatcherProcess`, with its options as JSON.

It says `ready` when it runs, and `batch` each time a batch is on its way: forwarded, perhaps not yet removed.
"""

import json
import logging
import random
import signal
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from delaystore.dispatcher import Dispatcher
from delaystore.message import DelayedMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import open_transport
from delaystore.transports.abc import Outcome, Transport
from tests.faults.backlog import ENDPOINT

ANNOUNCED = 1000  # lines that surely fit a pipe nobody reads


class AnnouncingTransport(Transport):
    """Another transport, but each batch is announced and lingers: a kill then finds it under way."""

    def __init__(self, inner: Transport, linger: float) -> None:
        self._inner = inner
        self._linger = linger
        self._announced = 0

    def send(
        self, messages: Sequence[DelayedMessage], transaction: DelayedMessageStore | None, timeout: float
    ) -> Sequence[Outcome]:
        before = random.uniform(0, self._linger)
        self._announce()
        time.sleep(before)
        outcomes = self._inner.send(messages, transaction, timeout)
        time.sleep(self._linger - before)
        return outcomes

    def _announce(self) -> None:
        self._announced += 1
        if self._announced <= ANNOUNCED:
            say("batch")

    def declare(self, queue: str) -> None:
        self._inner.declare(queue)

    def receive(self, queue: str, limit: int = 1, timeout: float = 0) -> Any:
        return self._inner.receive(queue, limit, timeout)

    def unavailable(self) -> str | None:
        return self._inner.unavailable()

    def shares_transaction_with(self, store: DelayedMessageStore) -> bool:
        return self._inner.shares_transaction_with(store)

    def check(self, message: DelayedMessage) -> None:
        self._inner.check(message)

    def close(self) -> None:
        self._inner.close()


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main(options: dict[str, Any]) -> None:
    """Dispatch until SIGTERM."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    store = SqlDelayedMessageStore(options["store"], lease=timedelta(seconds=options["lease"]))
    transport = AnnouncingTransport(open_transport(options["transport"]), options["linger"])
    dispatcher = Dispatcher(store, transport, DelayedDeliverySettings(**options["settings"]), ENDPOINT)
    signal.signal(signal.SIGTERM, lambda *_: dispatcher.stop(0))
    say("ready")
    dispatcher.run()
    transport.close()
    store.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
