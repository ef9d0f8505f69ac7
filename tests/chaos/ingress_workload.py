"""Publishers, ingresses, dispatchers and consumers on a topology."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import pika
from pika import exceptions
from typing_extensions import override

from delaystore.cascades import BrokerClient
from delaystore.ingress.topology import IngressNames, IngressTopology, create
from tests.chaos.program import CLASSIC, ENTRANCE, ERROR, QUORUM, REJECTED
from tests.chaos.recording_store import key_of
from tests.chaos.workload import Workload

NAMES = IngressNames.of(ENTRANCE)


class IngressWorkload(Workload):
    """Messages are published to an exchange, and reach the store by an ingress."""

    queues: Sequence[str] = (QUORUM, CLASSIC, ERROR, REJECTED)

    @override
    def _programs(self) -> Mapping[str, tuple[str, int]]:
        load = self._load
        return {
            "dispatcher": ("dispatching", load.dispatchers),
            "ingest": ("ingesting", load.ingests),
            "sender": ("publishing", load.senders),
        }

    @override
    def _declare_queues(self) -> None:
        super()._declare_queues()
        with BrokerClient(self._topology.broker.url) as client:
            create(client, IngressTopology(names=NAMES, out_type="topic", exchange_type="topic"))
        with self._connected() as connection:
            for queue in (QUORUM, CLASSIC):
                connection.channel().queue_bind(queue, NAMES.out, queue)

    @override
    def _is_done(self) -> bool:
        return super()._is_done() and self._left_in_entrance() == 0

    @override
    def _note_rest(self) -> None:
        """What is in the ingress queue counts as waiting, too."""
        with self._connected() as connection:
            channel = connection.channel()
            for method, _, body in channel.consume(NAMES.queue, inactivity_timeout=1):
                if method is None:
                    break
                self._recorder.note("waiting", key=key_of(body), failures=0)
        super()._note_rest()

    def _left_in_entrance(self) -> int | None:
        with suppress(exceptions.AMQPError), self._connected() as connection:
            queues = (NAMES.queue, NAMES.expired)
            return sum(connection.channel().queue_declare(queue, passive=True).method.message_count for queue in queues)
        return None

    def _connected(self) -> pika.BlockingConnection:
        return pika.BlockingConnection([pika.URLParameters(url) for url in self._topology.broker.consumer_urls])
