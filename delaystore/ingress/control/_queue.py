"""The control queue of an endpoint: requests are answered in order, each acknowledged after its answer."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from typing_extensions import override

from delaystore.breakers import RepeatedFailuresOverTimeCircuitBreaker, triggered
from delaystore.calls import StopFlag
from delaystore.dispatcher.health import HealthReport
from delaystore.errors import (
    ConfigurationError,
    DelaystoreError,
    DurabilityUnknownError,
    StoreError,
    StoreSetupError,
    StoreUnavailableError,
    TransportError,
)
from delaystore.ingress.consuming import BatchHandler, ConsumingLimits, ConsumingLoop, ConsumingWork
from delaystore.ingress.control._protocol import (
    Answer,
    ProblemCode,
    Protocol,
    ReadRequest,
    RequestContext,
    RequestError,
    ScheduleRequest,
    cut,
    problem_answer,
)
from delaystore.ingress.control._replies import ControlState, Replies, sender_of
from delaystore.operations import Operations
from delaystore.operations.changes import LookUpRequest, MessageRequest, RequestResult
from delaystore.schedules import Schedules
from delaystore.settings import CriticalErrorAction
from delaystore.stores.records import Way
from delaystore.text import MAX_SHORT_STRING_BYTES, control_character
from delaystore.transports import RabbitMQTransport, Transport
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.consuming import Consumed, Consumer
from delaystore.transports.rabbitmq.declaring import declare_missing
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.publisher import BatchPublisher
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Queue

logger = logging.getLogger("delaystore.ingress.control")


class ControlRequest(NamedTuple):
    """A request as it came: JSON, and who sent it."""

    body: bytes
    by: str


ENTRIES: Final = 10
"""Entries of the history that an answer has, at most."""
_HISTORY_ASKED_AGAIN: Final = 5.0
"""Seconds after which the store is asked again whether it keeps a history."""


class RequestAnswerer:
    """Does requests with the store of `operations`. Used by one thread.

    `schedules`: None: no requests about schedules are done.
    `on_rescheduled`: called with the earliest new due time of each transaction; None: nothing is called.
    """

    def __init__(
        self,
        operations: Operations,
        *,
        with_bodies: bool,
        schedules: Schedules | None = None,
        on_rescheduled: Callable[[datetime], object] | None = None,
    ) -> None:
        self._schedules = schedules
        self._operations = operations.acting_as(way=Way.CONTROL)
        self._on_rescheduled = on_rescheduled
        self._protocol = Protocol(operations.endpoint, with_bodies=with_bodies, with_schedules=schedules is not None)
        self._keeps_history = False
        self._ask_history_from = 0.0

    def answer(self, requests: Sequence[ControlRequest]) -> Sequence[Answer]:
        """Do the first of `requests`, one at least, in one transaction, and return the answers to these.

        A request about a schedule has a transaction of its own.

        Raises StoreUnavailableError, StoreSetupError: the store does nothing at present, and nothing was done;
        DurabilityUnknownError: it is done, and may be lost yet, so that it is to be done again. Requests that the
            store refuses are found by halves, and answered separately.
        """
        # A transaction of many requests fails as a whole, and the error does not say because of which. So the first
        # half is tried next, down to one request, which is then answered with its own error.
        most = len(requests)
        while True:
            try:
                return self._answer(requests[:most])
            except (StoreUnavailableError, StoreSetupError, DurabilityUnknownError):
                raise
            except Exception as error:
                if most == 1:
                    return [_refused(error)]
                most //= 2

    def _answer(self, requests: Sequence[ControlRequest]) -> Sequence[Answer]:
        now = self._operations.now()
        read: list[ReadRequest | Answer] = []
        for body, by in requests:
            asked = self._protocol.read(body, RequestContext(by=by, now=now))
            if not isinstance(asked, ScheduleRequest):
                read.append(asked)
                continue
            if read:
                break  # it has a transaction of its own, after the others
            assert self._schedules is not None
            return [asked.answer(self._schedules)]
        wanted = [one.request for one in read if not isinstance(one, Answer)]
        done = self._operations.do_all(wanted) if wanted else ()
        self._tell([result.due_time for result in done if result.due_time is not None])
        results = iter(done)
        answers: list[Answer] = []
        for one in read:
            if isinstance(one, Answer):
                answers.append(one)
            elif (result := next(results, None)) is not None:
                answers.append(one.answer(self._with_history(one.request, result)))
            else:
                break  # as many were done as bodies fit into memory
        return answers

    def _with_history(self, request: MessageRequest, result: RequestResult) -> RequestResult:
        """The result of a look-up with the entries of the history.

        Without them, where none is kept, or the store fails: the changes of the same batch are made, and the batch must
        not be tried again.
        """
        if not isinstance(request, LookUpRequest):
            return result
        try:
            if time.monotonic() >= self._ask_history_from:
                self._ask_history_from = time.monotonic() + _HISTORY_ASKED_AGAIN
                self._keeps_history = self._operations.history_status().kept is not None
            if not self._keeps_history:
                return result
            found = self._operations.history_of(request.message_id, key=request.key, limit=ENTRIES)
        except DelaystoreError as error:
            self._keeps_history = False
            logger.debug("cannot look up the history: %s; answers lack it for some seconds", error)
            return result
        return replace(result, history=found)

    def _tell(self, due_times: Sequence[datetime]) -> None:
        if due_times and self._on_rescheduled is not None:
            self._on_rescheduled(min(due_times))


def _refused(error: Exception) -> Answer:
    """The answer to a request that the store refuses, or that fails unexpectedly."""
    if isinstance(error, DelaystoreError):
        return problem_answer(RequestError(ProblemCode.REFUSED, cut(str(error))))
    logger.error("internal error, %s, while handling a request", type(error).__name__, exc_info=error)
    return problem_answer(
        RequestError(ProblemCode.REFUSED, f"unexpected {type(error).__name__}; the log has the details")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlHealth(HealthReport):
    """How the reading of a control queue in this process is doing. Counts are since it was made."""

    queue: str
    running: bool
    """Whether `run` runs in this process."""
    connected: bool = False
    """Whether the queue is read at this moment: False also at the beginning."""
    obstacle: str | None = None
    """Why it is not read; None: it is, or reading has only begun."""
    store: str | None = None
    """Why the store serves no requests; None: it works, as far as is known."""
    replies: str | None = None
    """Why answers, or rejected requests, wait to be published; None: none do."""
    requests: int = 0
    """Requests that were done, or found to be in error."""
    answered: int = 0
    unanswered: int = 0
    """Done, but the queue that was to have the answer did not take it."""
    rejected: int = 0
    """In error, and put into the rejected queue, as no answer could be sent."""
    breakers: Mapping[str, str] = field(default_factory=dict)
    """The state of each circuit breaker, `control` (reading) and `control_store`: disarmed, armed or triggered."""

    @property
    @override
    def problems(self) -> Sequence[str]:
        """Why it is not healthy, a sentence each; none: it is."""
        found = [] if self.running else [f"the control queue {self.queue!r} is not read by this process"]
        for what, why in (
            (f"the control queue {self.queue!r} is not read", self.obstacle),
            ("nothing that is asked is done", self.store),
            ("not all answers are given", self.replies),
        ):
            found += [] if why is None else [f"{what}: {why}"]
        return found + triggered(self.breakers)


@dataclass(frozen=True, slots=True)
class ControlNames:
    """`queue`: from which requests are read. Raises ConfigurationError for a name that no queue can have."""

    queue: str

    def __post_init__(self) -> None:
        bad = not self.queue.strip() or self.queue.startswith(("/", "amq.")) or control_character(self.queue)
        if bad or len(self.rejected.encode(errors="replace")) > MAX_SHORT_STRING_BYTES:
            raise ConfigurationError(
                f"a control queue cannot be called {self.queue[:80]!r}; give a name of up to "
                f"{MAX_SHORT_STRING_BYTES - len('.rejected')} bytes, such as ENDPOINT.control"
            )

    @property
    def layout(self) -> Layout:
        """The control queue's exchange, queues and binding, as data."""
        queues = tuple(Queue(name, {"x-queue-type": "quorum"}) for name in (self.queue, self.rejected))
        binding = Binding(self.exchange, self.queue, DestinationKind.QUEUE)
        return Layout(exchanges=(Exchange(self.exchange, "fanout"),), queues=queues, bindings=(binding,))

    @property
    def exchange(self) -> str:
        """A fanout exchange that leads to the queue: who may write to it, and to nothing else, may send requests."""
        return self.queue

    @property
    def rejected(self) -> str:
        """The queue of requests in error that got no answer."""
        return f"{self.queue}.rejected"


PREFETCH: Final = 1000
"""Requests that are in this process, at most."""
BATCH: Final = 500
"""Requests that one transaction does, at most."""
BYTES: Final = 16 * 2**20
"""Bytes of the requests of one batch, and of answers beyond which no more are made."""
_LOOK_AT_ANSWERS_EVERY: Final = 0.2
"""Seconds between two checks whether answers may be published again, where too many are owed."""


class ControlHandler(BatchHandler[Consumed]):
    """Does requests and answers them. Requests that the store does not serve wait in memory, and are tried again."""

    def __init__(
        self,
        answering: RequestAnswerer,
        replies: Replies,
        breaker: RepeatedFailuresOverTimeCircuitBreaker,
        state: ControlState,
    ) -> None:
        self._answering = answering
        self._replies = replies
        self._breaker = breaker
        self._state = state
        self._waiting: list[Consumed] = []
        """Taken, and not done."""
        self._not_before = 0.0
        """When to try these again, by time.monotonic."""
        self._done: Sequence[int] = ()
        """Tags of requests that can be acknowledged."""

    @property
    @override
    def held_bytes(self) -> int:
        return sum(each.size for each in self._waiting)

    @property
    @override
    def due_in(self) -> float | None:
        waiting = [max(0.0, self._not_before - time.monotonic())] if self._waiting else []
        owed = self._replies.due_in
        return min([*waiting, *([] if owed is None else [owed])], default=None)

    @property
    @override
    def takes_more(self) -> bool:
        return not self._waiting

    @override
    def next_batch(self, take: Callable[[], Sequence[Consumed]]) -> Sequence[Consumed] | None:
        if not self._waiting:
            self._waiting = list(take())
        due = self.due_in
        return None if due is None or due > 0 else list(self._waiting)

    @override
    def handle(self, batch: Sequence[Consumed]) -> None:
        if batch and time.monotonic() >= self._not_before:
            self._do(batch)
        self._done = self._replies.publish()

    @override
    def settle(self, batch: Sequence[Consumed], consumer: Consumer, *, failed: bool) -> None:
        if failed:
            return
        consumer.acknowledge(self._done)
        if self._replies.is_rejected_missing:
            raise TransportError("the queue for rejected requests is missing; it is declared again")

    def _do(self, batch: Sequence[Consumed]) -> None:
        """Do some of the requests: as many as the store does in one transaction."""
        if self._replies.size >= BYTES:
            self._not_before = time.monotonic() + _LOOK_AT_ANSWERS_EVERY
            return
        requests = [ControlRequest(each.delivery.body, sender_of(each.delivery.properties)) for each in batch]
        try:
            answers = self._answering.answer(requests)
        except StoreError as error:
            self._state.store = str(error)
            self._not_before = time.monotonic() + self._breaker.failure(error)
            return
        self._state.store = None
        self._breaker.success()
        for each, answer in zip(batch, answers, strict=False):
            self._replies.add(each.delivery, answer)
        del self._waiting[: len(answers)]


_TRIGGERED_AFTER: Final = timedelta(seconds=30)


class ControlQueue:
    """Lets programs that speak AMQP cancel, reschedule and look up the waiting messages of an endpoint.

    With `schedules` they also change recurring schedules.

    Any number, in any number of processes, may read one queue. It closes neither store nor transport.

    Args:
        operations: The endpoint's, as `DelayedDelivery.operations`.
        transport: A RabbitMQTransport.
        queue: Where requests come. It is declared as a quorum queue, with a fanout exchange of its name and
            `QUEUE.rejected`. None: `ENDPOINT.control`.
        with_bodies: Whether answers have the bodies of messages.
        schedules: The recurring schedules that requests may change, as `DelayedDelivery.schedules`; None: none may.
        on_critical_error: Called when store or broker have failed for half a minute.
        on_rescheduled: Called with a new due time, as to wake a dispatcher of this process.

    Raises:
        ConfigurationError: It is another transport, or no queue can have that name.

    Example:
        ```python
        transport = RabbitMQTransport("amqp://broker")
        control = ControlQueue(delivery.operations, transport, schedules=delivery.schedules)
        control.run()  # until control.stop(), as in a signal handler
        ```

    """

    def __init__(
        self,
        operations: Operations,
        transport: Transport | None,
        *,
        queue: str | None = None,
        with_bodies: bool = True,
        schedules: Schedules | None = None,
        on_critical_error: CriticalErrorAction | None = None,
        on_rescheduled: Callable[[datetime], object] | None = None,
    ) -> None:
        self._names = ControlNames(f"{operations.endpoint}.control" if queue is None else queue)
        self._broker = _broker_of(transport)
        self._answering = RequestAnswerer(
            operations, with_bodies=with_bodies, schedules=schedules, on_rescheduled=on_rescheduled
        )
        self._reading = RepeatedFailuresOverTimeCircuitBreaker(
            f"reading the control queue {self._names.queue!r}", _TRIGGERED_AFTER, on_critical_error
        )
        self._storing = RepeatedFailuresOverTimeCircuitBreaker(
            f"doing what the control queue {self._names.queue!r} asks for", _TRIGGERED_AFTER, on_critical_error
        )
        self._state = ControlState()
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
        """Finish the requests in progress, and end. May be called twice, and from a signal handler.

        Args:
            timeout: Seconds to wait for the end; None: as long as it takes. A call from the thread that runs it does
                not wait.

        Returns:
            True: it has ended, or did not run. False: it is still finishing.

        """
        return self._loop.stop(timeout)

    def health(self) -> ControlHealth:
        """How it is doing; asks neither store nor broker, and raises nothing."""
        return ControlHealth(
            queue=self.queue,
            running=self._loop.running,
            connected=self._loop.connected,
            obstacle=self._loop.obstacle,
            breakers={"control": self._reading.state.value, "control_store": self._storing.state.value},
            **asdict(self._state),
        )

    @contextmanager
    def _open_work(self, _stopping: StopFlag) -> Iterator[ConsumingWork[Consumed]]:
        with (
            closing(BatchPublisher(self._broker)) as publisher,
            closing(BlockingConnections(self._broker)) as connections,
        ):

            def queues() -> Sequence[str]:
                names = self._names
                declare_missing(self._broker, connections, names.layout, optional={names.rejected})
                return [names.queue]

            def handler(_queues: Sequence[str]) -> ControlHandler:
                replies = Replies(publisher, self._names.rejected, self._state)
                return ControlHandler(self._answering, replies, self._storing, self._state)

            yield ConsumingWork(queues=queues, handler=handler)


def _broker_of(transport: Transport | None) -> Broker:
    if not isinstance(transport, RabbitMQTransport):
        raise ConfigurationError(f"a control queue takes a RabbitMQTransport, not {type(transport).__name__}")
    return transport.broker
