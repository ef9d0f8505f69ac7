"""A process that dispatches until SIGTERM."""

import random
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from delaystore.delivery import DelayedDelivery
from delaystore.errors import StoreError
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import open_transport
from delaystore.transports.abc import Outcome, Transport
from tests.chaos.program import ENDPOINT, Program

START_AGAIN = 0.5  # seconds


def lingering(transport: Transport, longest: float) -> Transport:
    """The same transport, but each batch lingers for up to so many seconds before it is sent, and after, some ten times
    as long: faults then find it under way.
    """
    send = transport.send

    def slowly(*arguments: Any) -> Sequence[Outcome]:
        _linger(longest)
        outcomes = send(*arguments)
        _linger(longest)
        return outcomes

    transport.send = slowly  # type: ignore[method-assign, assignment]
    return transport


def _linger(longest: float) -> None:
    time.sleep(random.uniform(0, longest * (10 if random.random() < 0.1 else 1)))


def main(program: Program) -> None:
    options = program.options
    store = SqlDelayedMessageStore(options.store_url, lease=timedelta(seconds=options.load.lease))
    transport = lingering(open_transport(options.transport_url), options.load.linger)
    delivery = DelayedDelivery(ENDPOINT, store, transport, options.settings())
    while not program.ended.is_set():
        try:
            delivery.start()
            program.ended.wait()
        except StoreError:  # it sets up the store, which is down; a supervisor would start it again
            program.ended.wait(START_AGAIN)
    delivery.close(None)


if __name__ == "__main__":
    main(Program())
