"""The ingress: takes messages from a RabbitMQ queue into the store, in a thread of its own or in the caller's."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from functools import partial
from typing import Final

from typing_extensions import override

from delaystore.breakers import RepeatedFailuresOverTimeCircuitBreaker, StoreCalls
from delaystore.calls import StopFlag
from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, StoreError, StoreUnavailableError, TransportError
from delaystore.ingress._entries import IngestEntry, IngestResult, UnacknowledgedEntries
from delaystore.ingress._intake import BatchProcessor, Passthrough
from delaystore.ingress._storing import EntryStorage
from delaystore.ingress.consuming import BatchHandler, ConsumingLimits, ConsumingLoop, ConsumingWork
from delaystore.ingress.health import IngressCounts, IngressHealth, IngressHeartbeats
from delaystore.ingress.reading.incoming import IncomingMessage
from delaystore.ingress.reading.reader import IncomingReader, ReadingRules
from delaystore.ingress.rejected import RejectedQueue
from delaystore.ingress.settings import IngressOnRepeat, IngressSettings
from delaystore.processes import renew_in_children
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.records import Way
from delaystore.transports.rabbitmq import RabbitMQTransport
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.consuming import Consumed, Consumer
from delaystore.transports.rabbitmq.pika_errors import quiet_pika
from delaystore.transports.rabbitmq.publisher import BatchPublisher
from delaystore.transports.rabbitmq.queues import declare_queue, ready_counts, surely_missing


class IngressHandler(BatchHandler[IngestEntry]):
    """Has batches processed, acknowledges messages with a result, and retries the rest."""

    def __init__(
        self, queues: Sequence[str], settings: IngressSettings, intake: BatchProcessor, tally: IngressCounts
    ) -> None:
        self._queues = queues
        self._intake = intake
        self._tally = tally
        self._unacknowledged = UnacknowledgedEntries(settings)
        self._trouble: str | None = None
        """Why some of the last batch have no result."""
        tally.left(0, None)  # what an earlier connection left unacknowledged is in its queue, and may go to others

    @property
    @override
    def held_bytes(self) -> int:
        return self._unacknowledged.held_bytes

    @override
    def next_batch(self, take: Callable[[], Sequence[Consumed]]) -> Sequence[IngestEntry] | None:
        return self._unacknowledged.to_try() or [self._entry(each) for each in take()] or None

    @override
    def handle(self, batch: Sequence[IngestEntry]) -> None:
        self._trouble = self._intake.process(batch, self._unacknowledged.ids)

    @override
    def settle(self, batch: Sequence[IngestEntry], consumer: Consumer, *, failed: bool) -> None:
        settled = [entry for entry in batch if entry.result is not None]
        if len(settled) < len(batch):
            consumer.acknowledge_singly()
        consumer.acknowledge([entry.incoming.tag for entry in settled])
        self._tally.add(settled)
        if any(entry.result is IngestResult.REJECTED for entry in settled):
            consumer.give_back(self._unacknowledged.to_give_back())
        if failed:
            return
        if self._trouble is not None:
            self._unacknowledged.add([entry for entry in batch if entry.result is None], self._trouble)
        overdue = self._unacknowledged.overdue()
        if overdue:
            consumer.give_back(overdue)
        self._tally.left(len(self._unacknowledged), self._unacknowledged.trouble)

    def _entry(self, consumed: Consumed) -> IngestEntry:
        _, tag, redelivered, exchange, key, properties, body = consumed.delivery
        queue = self._queues[consumed.queue]
        return IngestEntry(IncomingMessage(queue, exchange, key, properties, body, redelivered, tag), consumed.at)


_ASKING: Final = 5.0
"""Seconds for the store to say how it is, after an outage."""


class Ingress:
    """Consumes a queue, stores its messages until they are due, and acknowledges them after the commit.

    Any number of ingresses, in any number of processes, may work on one queue. After a fork none runs in the child.

    Args:
        delivery: The endpoint that keeps the messages. It may dispatch as well. It is not closed.
        url: The broker, as for RabbitMQTransport.
        rules: How a message is read.
        settings: The queue, and how much is in memory at once.
        delivery_settings: Time limits of the store and the breakers. None: the defaults.
        on_stored: Called with the earliest due time of the stored batch, to wake a dispatcher of this process whose
            store cannot wake it.

    Raises:
        ConfigurationError: The endpoint's store cannot look up messages, or keeps no history for `on_repeat`, or the
            URL cannot work.

    Example:
        ```python
        names = IngressNames.of("reminders")
        rules = ReadingRules(
            ingress_queue=names.queue, destination=ExchangeDestination(names.out), check=transport.check
        )
        ingress = Ingress(delivery, "amqp://broker", rules, IngressSettings(queue=names.queue))
        ingress.start()
        ```

    """

    def __init__(
        self,
        delivery: DelayedDelivery,
        url: str | Sequence[str],
        rules: ReadingRules,
        settings: IngressSettings,
        delivery_settings: DelayedDeliverySettings | None = None,
        *,
        on_stored: Callable[[datetime], object] = lambda _: None,
    ) -> None:
        if not delivery.manages:
            raise ConfigurationError(
                "this store cannot look up messages, which an ingress needs; use a ManagedDelayedMessageStore"
            )
        if settings.on_repeat is IngressOnRepeat.DROP and not delivery.deduplicates:
            raise ConfigurationError(
                "this store keeps no history, which on_repeat drop needs; use a SQL store, or leave on_repeat out"
            )
        self._delivery = delivery
        self._transport = RabbitMQTransport(url)
        self._broker = self._transport.broker
        self._reader = IncomingReader(rules)
        self._settings = settings
        self._delivery_settings = delivery_settings or DelayedDeliverySettings()
        self._on_stored = on_stored
        self._inherited: list[object] = []
        self._assemble()
        renew_in_children(self, Ingress._renew_after_fork)

    @property
    def queue(self) -> str:
        """The ingress queue."""
        return self._settings.queue

    def start(self) -> None:
        """Run in a daemon thread. Returns at once, also while store or broker are down. May be called twice.

        Raises:
            RuntimeError: The process can start no thread. Then nothing runs, and it may be called again.

        """
        self._loop.start()

    def run(self) -> None:
        """Run in the calling thread until `stop` is called from a signal handler or another thread.

        Returns at once when this ingress is running already.
        """
        self._loop.run()

    def stop(self, timeout: float | None = None) -> bool:
        """Store and acknowledge the batch in progress, and end. May be called twice, and from a signal handler.

        Args:
            timeout: Seconds to wait for the end; None: as long as it takes. A call from the thread that runs it does
                not wait.

        Returns:
            True: it has ended. False: it is still finishing.

        """
        return self._loop.stop(timeout)

    def check(self) -> None:
        """Check whether the ingress queue exists.

        Raises:
            TransportError: It does not.
            TransportUnavailableError: The broker cannot be reached.

        """
        with closing(BlockingConnections(self._broker)) as connections:
            self._queues(connections)

    def health(self) -> IngressHealth:
        """How it is doing. Asks neither store nor broker."""
        return IngressHealth(
            queue=self.queue,
            running=self._loop.running,
            connected=self._loop.connected,
            obstacle=self._loop.obstacle,
            **self._tally.counts(),
            unacknowledged=self._tally.unacknowledged,
            why_unacknowledged=self._tally.trouble,
            breakers={"intake": self._storing_breaker.state.value, "consume": self._consuming_breaker.state.value},
            slow_store_call=self._calls.longest(),
            last_success=self._tally.last_success,
        )

    def _renew_after_fork(self) -> None:
        """In a forked child: go on without the parent's thread, and with new locks in place of its own."""
        self._inherited.append(self._loop.abandon())  # kept alive: its end would close the parent's connections
        self._assemble()

    def _assemble(self) -> None:
        settings, limits = self._delivery_settings, self._settings
        breaker = partial(RepeatedFailuresOverTimeCircuitBreaker, on_critical_error=settings.on_critical_error)
        self._tally = IngressCounts()
        self._storing_breaker = breaker("storing incoming messages", settings.time_to_trigger_store_circuit_breaker)
        self._consuming_breaker = breaker(f"consuming {self.queue}", settings.time_to_trigger_fetch_circuit_breaker)
        self._calls = StoreCalls(self._storing_breaker, settings.store_timeout)
        self._loop = ConsumingLoop(
            self._broker,
            f"the ingress queue {self.queue!r}",
            ConsumingLimits(
                prefetch=limits.prefetch, batch=limits.batch_size, memory_bytes=limits.memory_bytes, gathers=True
            ),
            self._consuming_breaker,
            self._open_work,
        )

    @contextmanager
    def _open_work(self, stopping: StopFlag) -> Iterator[ConsumingWork[IngestEntry]]:
        settings, timeout = self._settings, self._delivery_settings.dispatch_timeout.total_seconds()
        with ExitStack() as opened:
            opened.callback(self._transport.close)
            publisher = opened.enter_context(closing(BatchPublisher(self._broker)))
            connections = opened.enter_context(closing(BlockingConnections(self._broker)))
            opened.enter_context(IngressHeartbeats(self._delivery, self._transport, settings, self.health))
            declare = partial(declare_queue, connections, settings.rejected_queue, "quorum", lift_limit=True)
            changes = self._delivery.changes_as(Way.INGRESS, f"a publisher, by the ingress of {self.queue}")
            intake = BatchProcessor(
                self._delivery,
                changes,
                self._reader,
                EntryStorage(
                    self._delivery, changes, self._calls, settings.on_duplicate, self._on_stored, settings.on_repeat
                ),
                Passthrough(self._delivery, self._transport, settings.direct_below, timeout),
                RejectedQueue(publisher, settings.rejected_queue, declare),
                self._storing_breaker,
                stopping,
            )
            yield ConsumingWork(
                queues=partial(self._prepare, connections, declare),
                handler=lambda queues: IngressHandler(queues, settings, intake, self._tally),
                recover=self._recover,
            )

    def _prepare(self, connections: BlockingConnections, declare_rejected: Callable[[], None]) -> Sequence[str]:
        queues = self._queues(connections)
        self._delivery.prepare()  # after that: where the queues are missing, `create` is to declare them all
        if surely_missing(self._broker, self._settings.rejected_queue):  # if it is silent, others go on
            declare_rejected()
        return queues

    def _recover(self, error: Exception, stopping: StopFlag) -> bool:
        """Wait until the store answers again, a while at least; messages stay in the queue meanwhile."""
        if not isinstance(error, StoreError):
            return False
        while not stopping.wait(self._storing_breaker.failure(error)):
            problem = self._delivery.health(_ASKING).store
            if problem is None:
                break
            error = StoreUnavailableError(problem)
        return True

    def _queues(self, connections: BlockingConnections) -> Sequence[str]:
        names = (self._settings.queue, self._settings.expired_queue)
        with quiet_pika():
            ready, expired = ready_counts(connections, names)
        if ready is None:
            raise TransportError(
                f"there is no queue {names[0]!r} on {self._broker.label}; correct its name, or have "
                "`delaystore ingress create` make it"
            )
        return names[:1] if expired is None else names
