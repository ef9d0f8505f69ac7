"""A process that dispatches until SIGTERM."""

from datetime import timedelta

from delaystore.delivery import DelayedDelivery
from delaystore.errors import StoreError
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import open_transport
from tests.chaos.program import ENDPOINT, Program

START_AGAIN = 0.5  # seconds


def main(program: Program) -> None:
    options = program.options
    store = SqlDelayedMessageStore(options.store_url, lease=timedelta(seconds=options.lease))
    delivery = DelayedDelivery(ENDPOINT, store, open_transport(options.transport_url), options.settings())
    while not program.ended.is_set():
        try:
            delivery.start()
            program.ended.wait()
        except StoreError:  # it sets up the store, which is down; a supervisor would start it again
            program.ended.wait(START_AGAIN)
    delivery.close(None)


if __name__ == "__main__":
    main(Program())
