"""Consuming queues until `stop` is called: one loop for the ingress and for the control queue.

`ConsumingLoop` owns the thread: it connects, consumes, and reconnects after a pause. Consumed messages go to a
`BatchHandler`, a batch at a time, while the next batch is being prefetched.

Where is a message if the process dies? In its queue: a handler acknowledges it only after the store or another queue
has it.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from delaystore.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.calls import StopFlag, in_background
from delaystore.errors import StoreError, TransportError
from delaystore.transports.rabbitmq.consuming import Consumed, Consumer
from delaystore.transports.rabbitmq.parameters import Broker

_TICK: Final = 0.5
"""Seconds between two looks at whether `stop` was called."""
_FULL_TICK: Final = 0.05
"""Seconds, while nothing more is read from the broker."""
MANY: Final = 10
"""Messages. Where a batch has as many, gathering the next one pays; where few come, they are handled at once."""
_GATHERED_FOR: Final = 0.04
"""Seconds from the beginning of such a batch to the beginning of the next one, unless this is full sooner."""

logger = logging.getLogger("delaystore.ingress")


class ConsumedItem(Protocol):
    """A message, or an object made of it."""

    @property
    def size(self) -> int:
        """Bytes in memory."""
        ...


ItemT = TypeVar("ItemT", bound=ConsumedItem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumingLimits:
    """How much is in memory at once.

    Attributes:
        prefetch: Messages of each queue that may be unacknowledged.
        batch: Messages of one batch.
        memory_bytes: Bytes of messages; one batch has half at most. A single message may exceed it.
        gathers: Whether a batch waits a moment for more messages where the last one had many.

    """

    prefetch: int
    batch: int
    memory_bytes: int
    gathers: bool = False

    @property
    def batch_bytes(self) -> int:
        """Bytes of one batch."""
        return self.memory_bytes // 2


class BatchHandler(ABC, Generic[ItemT]):
    """Handles the messages of one connection, a batch at a time.

    `handle` runs in a thread of its own. Everything else runs in the loop's thread, and only between two batches.
    """

    @property
    def held_bytes(self) -> int:
        """Bytes of messages that are kept in memory between two batches."""
        return 0

    @property
    def due_in(self) -> float | None:
        """Seconds until it has work without new messages; None: it waits for new ones, or looks at each turn itself."""
        return None

    @property
    def takes_more(self) -> bool:
        """Whether the next batch may have new messages."""
        return True

    @abstractmethod
    def next_batch(self, take: Callable[[], Sequence[Consumed]]) -> Sequence[ItemT] | None:
        """The next batch; `take` gives new messages. Empty: there is work without a message; None: there is none."""

    @abstractmethod
    def handle(self, batch: Sequence[ItemT]) -> None:
        """Handle a batch; its exception ends the connection."""

    @abstractmethod
    def settle(self, batch: Sequence[ItemT], consumer: Consumer, *, failed: bool) -> None:
        """Acknowledge the finished messages of a batch. `failed`: `handle` has raised, which ends the connection
        after this.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumingWork(Generic[ItemT]):
    """The steps of a loop on each connection.

    Attributes:
        queues: Prepares the queues, and returns the queues to consume. Raises TransportError, StoreError.
        handler: Makes the handler of one connection, which consumes these queues.
        recover: Waits until the failed server is back, or until the loop is to stop. False: the loop pauses as its
            circuit breaker says.

    """

    queues: Callable[[], Sequence[str]]
    handler: Callable[[Sequence[str]], BatchHandler[ItemT]]
    recover: Callable[[Exception, StopFlag], bool] = lambda _error, _stopping: False


class ConsumingLoop(Generic[ItemT]):
    """Consumes queues of a broker until it is stopped, on one connection after the other.

    Args:
        broker: The broker.
        what: The consumed queues, for messages to people.
        limits: How much is in memory at once.
        breaker: Circuit breaker of connecting and consuming; it says how long to pause.
        open_work: A context that is open as long as the loop runs. It gets the flag that is set when the loop is to
            stop.

    """

    def __init__(
        self,
        broker: Broker,
        what: str,
        limits: ConsumingLimits,
        breaker: RepeatedFailuresOverTimeCircuitBreaker,
        open_work: Callable[[StopFlag], AbstractContextManager[ConsumingWork[ItemT]]],
    ) -> None:
        self._broker = broker
        self._what = what
        self._limits = limits
        self._breaker = breaker
        self._open_work = open_work
        self._lifecycle = threading.Lock()
        self._run: _LoopRun | None = None

    @property
    def running(self) -> bool:
        """Whether it runs in this process, and has not ended."""
        return self._run is not None and not self._run.finished.is_set()

    @property
    def connected(self) -> bool:
        """Whether it is consuming."""
        return self._run is not None and self._run.connected

    @property
    def obstacle(self) -> str | None:
        """Why it is not consuming; None: it is, or has only begun."""
        return None if self._run is None else self._run.obstacle

    def start(self) -> None:
        """Run in a daemon thread; returns at once, also while the broker is down. May be called twice.

        Raises:
            RuntimeError: The process can start no thread. Then nothing runs, and it may be called again.

        """
        with self._lifecycle:
            if self.running:
                return
            former, run = self._run, _LoopRun()
            run.thread = threading.Thread(
                target=self._work, args=(run,), name=f"delaystore-consuming {self._what}", daemon=True
            )
            self._run = run
            try:
                run.thread.start()
            except RuntimeError as error:
                self._run = former
                raise RuntimeError(
                    f"this process cannot start a thread for {self._what}; raise its limit of threads, and start "
                    "it again"
                ) from error

    def run(self) -> None:
        """Run in the calling thread until `stop` is called from a signal handler or another thread.

        Returns at once when it is running already.
        """
        with self._lifecycle:
            if self.running:
                return
            run = _LoopRun()
            run.thread = threading.current_thread()
            self._run = run
        self._work(run)

    def stop(self, timeout: float | None = None) -> bool:
        """Finish and acknowledge the batch in progress, and end. May be called twice, and from a signal handler.

        Args:
            timeout: Seconds to wait for the end; None: as long as it takes. A call from the thread that runs the loop
                does not wait.

        Returns:
            True: it has ended, or did not run. False: it is still finishing.

        """
        run = self._run
        if run is None:
            return True
        run.stop()
        return run.finished.is_set() if run.thread is threading.current_thread() else run.finished.wait(timeout)

    def abandon(self) -> object:
        """In a forked child: forget the parent's thread. The result is to be kept: its end closes the connection."""
        run, self._run = self._run, None
        self._lifecycle = threading.Lock()
        return run

    def _work(self, run: "_LoopRun") -> None:
        with ExitStack() as opened:
            opened.callback(run.finished.set)  # whatever else fails: `stop` may wait for it
            opened.callback(run.disconnect)
            work = opened.enter_context(self._open_work(run.stopping))
            while not run.stopping.is_set():
                self._consume(run, work)

    def _consume(self, run: "_LoopRun", work: ConsumingWork[ItemT]) -> None:
        """One connection, for as long as nothing fails; then a pause."""
        try:
            queues = work.queues()
            with Consumer(self._broker, self._what, queues, self._limits.prefetch) as consumer:
                run.connect(consumer)
                self._breaker.success()
                _Session(consumer, work.handler(queues), self._limits, run.stopping).run()
            run.disconnect()
        except Exception as error:  # whatever it is, the loop goes on
            if not isinstance(error, TransportError | StoreError):
                logger.exception("internal error while consuming %s; reconnecting", self._what)
            run.disconnect(error)
            if not work.recover(error, run.stopping):
                run.stopping.wait(self._breaker.failure(error))


class _LoopRun:
    """A run of a loop from its beginning to its end."""

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
            in_background("delaystore-consuming-stop", consumer.wake)  # which takes a lock that a signal may interrupt


class _Session(Generic[ItemT]):
    """One connection: consumes until it is stopped, or something fails."""

    def __init__(
        self, consumer: Consumer, handler: BatchHandler[ItemT], limits: ConsumingLimits, stopping: StopFlag
    ) -> None:
        self._consumer = consumer
        self._take = partial(consumer.take, limits.batch, limits.batch_bytes)
        self._handler = handler
        self._limits = limits
        self._stopping = stopping
        self._batch: Sequence[ItemT] = ()
        """The batch that is being handled."""
        self._batch_bytes = 0
        self._last = 0
        """How many messages the last batch had."""
        self._began = 0.0
        self._future: Future[None] | None = None

    def run(self) -> None:
        """Raises TransportError, and the handler's errors. Unacknowledged messages go back to their queue."""
        with ThreadPoolExecutor(1, thread_name_prefix="delaystore-consuming") as worker:
            try:
                while not self._stopping.is_set():
                    self._receive()
                    self._finish()
                    self._begin(worker)
                self._consumer.stop()
            finally:
                if self._future is not None:
                    wait([self._future])
            self._finish()
        self._consumer.finish()

    def _receive(self) -> None:
        """Prefetch, and answer heartbeats. Where memory is full, no more is read until the batch is done."""
        room = self._limits.memory_bytes - self._handler.held_bytes - self._batch_bytes
        if self._consumer.prefetched_bytes >= room:
            if self._future is not None:
                wait([self._future], _FULL_TICK)
                self._consumer.keep_alive()
            elif self._wait:
                self._stopping.wait(self._wait)
                self._consumer.keep_alive()
        elif self._future is not None:
            self._consumer.receive(_TICK, room)  # no message is needed before the batch is done
        elif self._consumer.prefetched:
            self._consumer.receive(self._wait, room)
        else:
            self._consumer.receive(self._wait)

    @property
    def _wait(self) -> float:
        """Seconds until the next batch can begin, as far as is known."""
        due = self._handler.due_in
        seconds = _TICK if due is None else min(due, _TICK)
        if self._consumer.prefetched and self._handler.takes_more:
            return min(seconds, self._gathering)
        return seconds

    @property
    def _gathering(self) -> float:
        """Seconds for which the next batch waits for more: a commit for every few messages costs as much as many do."""
        if not self._limits.gathers or self._last < MANY or self._is_full:
            return 0.0
        return max(0.0, self._began + _GATHERED_FOR - time.monotonic())

    @property
    def _is_full(self) -> bool:
        """Whether the next batch has all that it may have."""
        consumer, limits = self._consumer, self._limits
        most = min(limits.batch, limits.prefetch)
        return len(consumer.prefetched) >= most or consumer.prefetched_bytes >= limits.batch_bytes

    def _begin(self, worker: ThreadPoolExecutor) -> None:
        if self._future is not None or self._gathering:
            return
        batch = self._handler.next_batch(self._take)
        if batch is not None:
            self._batch, self._began = batch, time.monotonic()
            self._batch_bytes = sum([item.size for item in batch])
            self._future = worker.submit(self._handler.handle, batch)
            self._future.add_done_callback(self._consumer.wake)

    def _finish(self) -> None:
        """Settle the batch once it is done; then raise the error that ended it."""
        future = self._future
        if future is None or not future.done():
            return
        # In the loop's thread, which owns the channel: the worker thread must not acknowledge. Results are settled even
        # if the handler raised, since what the store has committed would otherwise come again.
        batch, self._batch, self._batch_bytes = self._batch, (), 0
        self._future, self._last = None, len(batch)
        self._handler.settle(batch, self._consumer, failed=future.exception() is not None)
        future.result()
