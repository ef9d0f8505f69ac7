"""The ingress: takes messages from a RabbitMQ queue into the store, in a thread of its own or in the caller's."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from typing import Final

from delaystore.calls import StopFlag, in_background
from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.dispatcher.store_calls import StoreCalls
from delaystore.errors import ConfigurationError, StoreError, StoreUnavailableError, TransportError
from delaystore.forks import renew_in_children
from delaystore.ingress._beats import Beats
from delaystore.ingress._direct import Direct
from delaystore.ingress._intake import Intake
from delaystore.ingress._rejecting import Rejecting
from delaystore.ingress._session import Session
from delaystore.ingress._storing import Storing
from delaystore.ingress._tally import Tally
from delaystore.ingress.health import IngressHealth
from delaystore.ingress.reading.reader import ArrivalReader
from delaystore.ingress.reading.rules import ReadingRules
from delaystore.ingress.settings import IngressSettings
from delaystore.settings import DelayedDeliverySettings
from delaystore.transports.rabbitmq import RabbitMQTransport
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.consuming.consumer import Consumer
from delaystore.transports.rabbitmq.existence import ready_counts, surely_missing
from delaystore.transports.rabbitmq.pika_errors import quiet_pika
from delaystore.transports.rabbitmq.queues import declare_queue
from delaystore.transports.rabbitmq.raw.copies import CopyPublisher

_ASKING: Final = 5.0
"""Seconds for the store to say how it is, after an outage."""

logger = logging.getLogger("delaystore.ingress")


class Ingress:
    """Takes messages from a queue, stores them until they are due, and acknowledges them after the commit.

    Any number of ingresses, in any number of processes, may work on one queue. After a fork the child has none running.

    `delivery`: the endpoint that keeps the messages; it may dispatch as well, here or elsewhere. It is not closed.
    `url`: the broker, as for RabbitMQTransport. `rules`: how a message is read. `delivery_settings`: where the time
    limits of the store and the breakers are; None: the defaults. `on_stored` is told the earliest due time of what was
    just stored, so that a dispatcher of this process can be woken whose store cannot wake it.
    Raises ConfigurationError.
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
            raise ConfigurationError("an ingress looks messages up; its store must be a ManagedDelayedMessageStore")
        self._delivery = delivery
        self._transport = RabbitMQTransport(url)
        self._broker = self._transport.broker
        self._reader = ArrivalReader(rules)
        self._settings = settings
        self._delivery_settings = delivery_settings or DelayedDeliverySettings()
        self._on_stored = on_stored
        self._inherited: list[_Run] = []
        self._run: _Run | None = None
        self._assemble()
        renew_in_children(self, Ingress._renew_after_fork)

    @property
    def queue(self) -> str:
        """The ingress queue."""
        return self._settings.queue

    def start(self) -> None:
        """Run in a daemon thread; returns at once, also while store or broker are down. May be called twice.

        Raises RuntimeError where the process can start no thread; then nothing runs, and it may be called again.
        """
        with self._lifecycle:
            if self._is_running():
                return
            former, run = self._run, _Run()
            run.thread = threading.Thread(
                target=self._work, args=(run,), name=f"delaystore-ingress-{self.queue}", daemon=True
            )
            self._run = run
            try:
                run.thread.start()
            except RuntimeError as error:
                self._run = former
                raise RuntimeError(
                    f"this process can start no thread for the ingress of {self.queue!r}; raise its limit of threads, "
                    "and start the ingress again"
                ) from error

    def run(self) -> None:
        """Run in the calling thread until `stop` is called from a signal handler or another thread.

        Returns at once when this ingress is running already.
        """
        with self._lifecycle:
            if self._is_running():
                return
            run = _Run()
            run.thread = threading.current_thread()
            self._run = run
        self._work(run)

    def stop(self, timeout: float | None = None) -> bool:
        """Store and acknowledge what is under way, and end. May be called twice, and from a signal handler.

        Waits up to `timeout` seconds (None: as long as it takes). True: it has ended; False: it is still finishing. A
        call from the thread that runs it does not wait.
        """
        run = self._run
        if run is None:
            return True
        run.stop()
        return run.finished.is_set() if run.is_current_thread() else run.finished.wait(timeout)

    def check(self) -> None:
        """Find out whether the ingress queue is there.

        Raises TransportError where it is not, TransportUnavailableError where the broker cannot be reached.
        """
        connections = BlockingConnections(self._broker)
        try:
            self._queues(connections)
        finally:
            connections.close()

    def health(self) -> IngressHealth:
        """How it is doing. Asks nobody."""
        run = self._run
        return IngressHealth(
            queue=self.queue,
            running=self._is_running(),
            connected=run is not None and run.connected,
            obstacle=None if run is None else run.obstacle,
            **self._tally.counts(),
            kept_back=self._tally.kept_back,
            why_kept_back=self._tally.trouble,
            breakers={"intake": self._storing_breaker.state.value, "consume": self._consuming_breaker.state.value},
            slow_store_call=self._calls.longest(),
            last_success=self._tally.last_success,
        )

    def _renew_after_fork(self) -> None:
        """In a forked child: go on without the parent's thread, and with new locks in place of its own."""
        if self._run is not None:
            self._inherited.append(self._run)  # kept alive: its end would close the parent's connections
            self._run = None
        self._assemble()

    def _assemble(self) -> None:
        settings = self._delivery_settings
        breaker = partial(RepeatedFailuresOverTimeCircuitBreaker, on_critical_error=settings.on_critical_error)
        self._tally = Tally()
        self._lifecycle = threading.Lock()
        self._storing_breaker = breaker("storing what has arrived", settings.time_to_trigger_store_circuit_breaker)
        self._consuming_breaker = breaker(f"consuming {self.queue}", settings.time_to_trigger_fetch_circuit_breaker)
        self._calls = StoreCalls(self._storing_breaker, settings.store_timeout)

    def _is_running(self) -> bool:
        return self._run is not None and not self._run.finished.is_set()

    def _work(self, run: "_Run") -> None:
        with ExitStack() as opened:
            opened.callback(run.finished.set)  # whatever else fails: somebody may wait for it
            opened.callback(run.disconnect)
            opened.callback(self._transport.close)
            publisher = opened.enter_context(closing(CopyPublisher(self._broker)))
            connections = opened.enter_context(closing(BlockingConnections(self._broker)))
            opened.enter_context(Beats(self._delivery, self._transport, self._settings, self.health))
            intake = self._intake(run, publisher, connections)
            while not run.stopping.is_set():
                self._consume(run, intake, connections)

    def _intake(self, run: "_Run", publisher: CopyPublisher, connections: BlockingConnections) -> Intake:
        settings, timeout = self._settings, self._delivery_settings.dispatch_timeout.total_seconds()
        return Intake(
            self._delivery,
            self._reader,
            Storing(self._delivery, self._calls, settings.on_duplicate, self._on_stored),
            Direct(self._delivery, self._transport, settings.direct_below, timeout),
            Rejecting(publisher, settings.rejected_queue, partial(self._declare_rejected, connections)),
            self._storing_breaker,
            run.stopping,
        )

    def _consume(self, run: "_Run", intake: Intake, connections: BlockingConnections) -> None:
        """One connection, for as long as nothing fails; then a pause."""
        try:
            queues = self._queues(connections)
            self._prepare(connections)  # after that: where they are missing, `create` is to declare them all
            with Consumer(self._broker, self.queue, queues, self._settings.prefetch) as consumer:
                run.connect(consumer)
                self._consuming_breaker.success()
                Session(consumer, queues, self._settings, intake, self._tally, run.stopping).run()
            run.disconnect()
        except TransportError as error:
            run.disconnect(error)
            run.stopping.wait(self._consuming_breaker.failure(error))
        except StoreError as error:
            run.disconnect(error)
            self._await_store(run, error)
        except Exception as error:  # whatever it is, the ingress goes on
            logger.exception("taking messages of %r in failed unexpectedly; it starts afresh", self.queue)
            run.disconnect(error)
            run.stopping.wait(self._consuming_breaker.failure(error))

    def _prepare(self, connections: BlockingConnections) -> None:
        self._delivery.prepare()
        if surely_missing(self._broker, self._settings.rejected_queue):  # if it is silent, others go on
            self._declare_rejected(connections)

    def _declare_rejected(self, connections: BlockingConnections) -> None:
        declare_queue(connections, self._settings.rejected_queue, "quorum", lift_limit=True)

    def _queues(self, connections: BlockingConnections) -> tuple[str, ...]:
        names = (self._settings.queue, self._settings.expired_queue)
        with quiet_pika():
            ready, expired = ready_counts(connections, names)
        if ready is None:
            raise TransportError(
                f"there is no queue {names[0]!r} on {self._broker.label}; correct its name, or have "
                "`delaystore ingest create` make it"
            )
        return names[:1] if expired is None else names

    def _await_store(self, run: "_Run", error: StoreError) -> None:
        """Wait until the store answers again, a while at least; messages stay in the queue meanwhile."""
        while not run.stopping.wait(self._storing_breaker.failure(error)):
            problem = self._delivery.health(_ASKING).store
            if problem is None:
                return
            error = StoreUnavailableError(problem)


class _Run:
    """A run from its beginning to its end."""

    def __init__(self) -> None:
        self.stopping = StopFlag()
        self.finished = threading.Event()
        self.thread: threading.Thread | None = None
        self.obstacle: str | None = None
        self._consumer: Consumer | None = None

    @property
    def connected(self) -> bool:
        return self._consumer is not None

    def connect(self, consumer: Consumer) -> None:
        self._consumer, self.obstacle = consumer, None

    def disconnect(self, error: Exception | None = None) -> None:
        self._consumer, self.obstacle = None, None if error is None else str(error)

    def stop(self) -> None:
        self.stopping.set()
        consumer = self._consumer
        if consumer is not None:
            in_background("delaystore-ingress-stop", consumer.wake)  # which takes a lock that a signal may interrupt

    def is_current_thread(self) -> bool:
        return self.thread is threading.current_thread()
