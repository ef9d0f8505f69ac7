"""The control queue of an endpoint: requests in, answers out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from typing_extensions import override

from delaystore.calls import StopFlag
from delaystore.control._answering import Answering
from delaystore.control._names import ControlNames
from delaystore.control._reading import BATCH, BYTES, PREFETCH, ControlHandler
from delaystore.control._replies import Replies
from delaystore.control._standing import Standing
from delaystore.control.health import ControlHealth
from delaystore.dispatcher.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.errors import ConfigurationError
from delaystore.ingress.consuming import ConsumingLimits, ConsumingLoop, ConsumingWork
from delaystore.operations import Operations
from delaystore.settings import CriticalErrorAction
from delaystore.transports import RabbitMQTransport, Transport
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.consuming import Consumed
from delaystore.transports.rabbitmq.copies import CopyPublisher
from delaystore.transports.rabbitmq.declaring import declare_missing
from delaystore.transports.rabbitmq.parameters import Broker

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
        limits = ConsumingLimits(prefetch=PREFETCH, batch=BATCH, memory_bytes=2 * BYTES)
        what = f"the control queue {self._names.queue!r}"
        self._loop = ConsumingLoop(self._broker, what, limits, self._reading, self._open_work)

    @property
    def queue(self) -> str:
        """From which requests are read."""
        return self._names.queue

    def run(self) -> None:
        """Answer requests in the calling thread until `stop` is called; also while store or broker are down.

        Returns at once when this control queue is being read by another call.
        """
        self._loop.run()

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the requests at hand, and end. May be called twice, and from a signal handler.

        Waits up to `timeout` seconds (None: as long as it takes). True: it has ended, or did not run; False: it is
        still finishing. A call from the thread that runs it, as a signal handler's, does not wait.
        """
        return self._loop.stop(timeout)

    def health(self) -> ControlHealth:
        """How it is doing; asks nobody, and raises nothing."""
        return ControlHealth(
            queue=self.queue,
            running=self._loop.running,
            connected=self._loop.connected,
            obstacle=self._loop.obstacle,
            breakers={"control": self._reading.state.value, "control_store": self._storing.state.value},
            **asdict(self._standing),
        )

    @contextmanager
    def _open_work(self, _stopping: StopFlag) -> Iterator["_ControlWork"]:
        with (
            closing(CopyPublisher(self._broker)) as publisher,
            closing(BlockingConnections(self._broker)) as connections,
        ):
            replies = partial(Replies, publisher, self._names.rejected, self._standing)
            yield _ControlWork(
                declare=partial(
                    declare_missing,
                    self._broker,
                    connections,
                    self._names.layout,
                    optional={self._names.rejected},
                ),
                queue=self._names.queue,
                make_handler=lambda: ControlHandler(self._answering, replies(), self._storing, self._standing),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ControlWork(ConsumingWork[Consumed]):
    """What a control queue does on each connection."""

    declare: Callable[[], None]
    queue: str
    make_handler: Callable[[], ControlHandler]

    @override
    def queues(self) -> Sequence[str]:
        self.declare()
        return [self.queue]

    @override
    def handler(self, queues: Sequence[str]) -> ControlHandler:
        return self.make_handler()


def _broker_of(transport: Transport | None) -> Broker:
    if not isinstance(transport, RabbitMQTransport):
        raise ConfigurationError(f"a control queue takes a RabbitMQTransport, not {type(transport).__name__}")
    return transport.broker
