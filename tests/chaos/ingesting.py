"""A process that takes messages in until SIGTERM. It notes what it stores, before and after."""

import random
import time
from collections.abc import Iterable

from delaystore.delivery import DelayedDelivery
from delaystore.errors import DuplicateMessageError, InvalidMessageError
from delaystore.ingress.ingress import Ingress
from delaystore.ingress.reading.destinations import parse_destination
from delaystore.ingress.reading.reader import ReadingRules
from delaystore.ingress.settings import IngressSettings
from delaystore.ingress.topology import IngressNames
from delaystore.message import DelayedMessage, KeyRule
from delaystore.stores.abc import REJECT
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports.rabbitmq import RabbitMQTransport
from tests.chaos.history import Recorder
from tests.chaos.program import ENDPOINT, ENTRANCE, Program
from tests.chaos.recording_store import key_of

PREFETCH, BATCH = 200, 50
REFUSALS = (DuplicateMessageError, InvalidMessageError)
"""After which nothing of the batch is stored."""


class IntakeStore(SqlDelayedMessageStore):
    """Notes each message that is stored: `storing`, then `stored` or `not_stored`; none of these: nobody knows.

    Each transaction lingers for up to `linger` seconds before it begins and after its commit.
    """

    def __init__(self, url: str, recorder: Recorder, linger: float) -> None:
        super().__init__(url)
        self._recorder = recorder
        self._linger = linger

    def store_many(self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT) -> int:
        batch = list(messages)
        self._note("storing", batch)
        time.sleep(random.uniform(0, self._linger))
        try:
            count = super().store_many(batch, rule)
        except REFUSALS:
            self._note("not_stored", batch)
            raise
        self._note("stored", batch)
        time.sleep(random.uniform(0, self._linger))
        return count

    def _note(self, kind: str, messages: Iterable[DelayedMessage]) -> None:
        for message in messages:
            self._recorder.note(kind, key=key_of(message.body), id=message.message_id)


def main(program: Program) -> None:
    options, names = program.options, IngressNames.of(ENTRANCE)
    store = IntakeStore(options.store_url, program.recorder, options.load.linger)
    delivery = DelayedDelivery(ENDPOINT, store, settings=options.settings())
    rules = ReadingRules(
        ingress_queue=names.queue,
        destination=parse_destination(f"/exchanges/{names.out}", "--destination"),
        check=RabbitMQTransport(options.transport_url).check,
    )
    settings = IngressSettings(queue=names.queue, prefetch=PREFETCH, batch_size=BATCH)
    ingress = Ingress(delivery, options.transport_url, rules, settings, options.settings())
    ingress.start()
    program.ended.wait()
    ingress.stop()
    delivery.close()


if __name__ == "__main__":
    main(Program())
