"""The control queue of an endpoint: requests in, answers out."""

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Final

from delaystore.calls import StopFlag, in_background
from delaystore.control._answering import Answering
from delaystore.control._names import ControlNames
from delaystore.control._reading import PREFETCH, Reading
from delaystore.control._replies import Replies
from delaystore.control._standing import Standing
from delaystore.control.health import ControlHealth
from delaystore.dispatcher.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.errors import ConfigurationError, TransportError
from delaystore.operations import Operations
from delaystore.settings import CriticalErrorAction
from delaystore.transports import RabbitMQTransport, Transport
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.consuming.consumer import Consumer
from delaystore.transports.rabbitmq.declaring import declare_missing
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.raw.copies import CopyPublisher

logger = logging.getLogger("delaystore.control")

_TRIGGERED_AFTER: Final = timedelta(seconds=30)


class ControlQueue:
    """Lets programs that speak AMQP cancel, reschedule and look up what waits for an endpoint.

    `operations`: the endpoint's, as `DelayedDelivery.operations`. `transport`: a RabbitMQTransport. `queue`: where
    requests come; None: `ENDPOINT.control`. It is declared as a quorum queue, with a fanout exchange of its name and
    `QUEUE.rejected`. `with_bodies`: whether messages are answered with their bodies. `on_critical_error`: is called
    when store or broker have failed for half a minute. `on_rescheduled`: is called with a new due time, as to wake a
    dispatcher of this process.

    Any number, in any number of processes, may read one queue. It closes neither store nor transport.
    Raises ConfigurationError for another transport, and for a name that no queue can have.
    """

    def __init__(
        self,
        operations: Operations,
        transport: Transport | None,
        *,
        queue: str | None = None,
        with_bodies: bool = True,
        on_critical_error: CriticalErrorAction | None = None,
        on_rescheduled: Callable[[datetime], object] | None = None,
    ) -> None:
        self._names = ControlNames(f"{operations.endpoint}.control" if queue is None else queue)
        self._broker = _broker_of(transport)
        self._answering = Answering(operations, with_bodies=with_bodies, on_rescheduled=on_rescheduled)
        self._reading = RepeatedFailuresOverTimeCircuitBreaker(
            f"reading the control queue {self._names.queue!r}", _TRIGGERED_AFTER, on_critical_error
        )
        self._storing = RepeatedFailuresOverTimeCircuitBreaker(
            f"doing what the control queue {self._names.queue!r} asks for", _TRIGGERED_AFTER, on_critical_error
        )
        self._standing = Standing()
        self._lock = threading.Lock()
        self._stopping = StopFlag()
        self._ended = threading.Event()
        self._ended.set()
        self._thread_id: int | None = None
        self._consumer: Consumer | None = None

    @property
    def queue(self) -> str:
        """From which requests are read."""
        return self._names.queue

    def run(self) -> None:
        """Answer requests in the calling thread until `stop` is called; also while store or broker are down.

        Returns at once when this control queue is being read by another call.
        """
        with self._lock:
            if not self._ended.is_set():
                return
            self._stopping = StopFlag()
            self._ended.clear()
            self._thread_id = threading.get_ident()
        try:
            with (
                closing(CopyPublisher(self._broker)) as publisher,
                closing(BlockingConnections(self._broker)) as asking,
            ):
                while not self._stopping.is_set():
                    self._guarded(publisher, asking)
        finally:
            self._thread_id = None
            self._ended.set()

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the requests at hand, and end. May be called twice, and from a signal handler.

        Waits up to `timeout` seconds (None: as long as it takes). True: it has ended, or did not run; False: it is
        still finishing. A call from the thread that runs it, as a signal handler's, does not wait.
        """
        self._stopping.set()
        consumer = self._consumer
        if consumer is not None:
            in_background("delaystore-control-stop", consumer.wake)  # which takes a lock that a signal may interrupt
        if self._thread_id == threading.get_ident():
            return self._ended.is_set()
        return self._ended.wait(timeout)

    def health(self) -> ControlHealth:
        """How it is doing; asks nobody, and raises nothing."""
        return ControlHealth(
            queue=self.queue,
            running=not (self._ended.is_set() or self._stopping.is_set()),
            breakers={"control": self._reading.state.value, "control_store": self._storing.state.value},
            **asdict(self._standing),
        )

    def _guarded(self, publisher: CopyPublisher, asking: BlockingConnections) -> None:
        """Read until the connection is lost; wait then."""
        try:
            self._read(publisher, asking)
        except Exception as error:
            if not isinstance(error, TransportError):
                logger.error("unexpected %s at the control queue, which goes on", type(error).__name__, exc_info=error)
            self._standing.connected, self._standing.obstacle = False, str(error)
            self._stopping.wait(self._reading.failure(error))
        finally:
            self._consumer, self._standing.connected = None, False

    def _read(self, publisher: CopyPublisher, asking: BlockingConnections) -> None:
        declare_missing(self._broker, asking, self._names.layout, optional={self._names.rejected})
        what = f"the control queue {self._names.queue!r}"
        with Consumer(self._broker, what, [self._names.queue], PREFETCH) as consumer:
            self._consumer = consumer
            self._standing.connected, self._standing.obstacle = True, None
            self._reading.success()
            replies = Replies(publisher, self._names.rejected, self._standing)
            Reading(consumer, self._answering, replies, self._storing, self._standing, self._stopping).run()


def _broker_of(transport: Transport | None) -> Broker:
    if not isinstance(transport, RabbitMQTransport):
        raise ConfigurationError(f"a control queue takes a RabbitMQTransport, not {type(transport).__name__}")
    return transport.broker
