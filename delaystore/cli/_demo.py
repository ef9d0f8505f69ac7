"""`delaystore demo`: messages are scheduled, wait, are dispatched, received and compared."""

import json
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, runtime_checkable

import typer

from delaystore.calls import ProgressListener
from delaystore.cli._commands import Offered
from delaystore.cli._options import EndpointOptions, JsonOption
from delaystore.cli._output import print_document, print_note, print_table
from delaystore.cli._signals import stop_requests
from delaystore.clock import Clock, ExtrapolatedClock
from delaystore.errors import DelaystoreError, TransportError
from delaystore.message import DelayedMessage, new_message_id
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.text import counted
from delaystore.transports.abc import Transport

if TYPE_CHECKING:
    from delaystore.delivery import DelayedDelivery


def demo(
    messages: Annotated[int, typer.Option(min=1, max=10_000_000, metavar="NUMBER", help="Number of messages.")] = 1000,
    seconds: Annotated[
        float, typer.Option(min=0, max=86_400, metavar="NUMBER", help="Seconds over which the messages fall due.")
    ] = 5,
    *,
    where: Annotated[EndpointOptions, Offered("store", "transport", "schema")],
    as_json: JsonOption = False,
) -> None:
    """Send, deliver and check 1,000 demo messages.

    The demo compares sent messages with received ones. It needs no server: by default it uses a SQLite store and SQL
    queues in one temporary file, with exactly-once delivery. With --store and --transport it creates tables and queues
    there, and removes them at the end. With memory:// all messages stay in this process.
    """
    from delaystore.cli._progress import ProgressBar

    with stop_requests() as stop, _opened(where) as opened, demo_endpoint(*opened, print_note) as own:
        guarantee = "store and queue share a database: exactly once" if own.exactly_once else "at least once"
        print_note(f"{counted(messages, 'message')} over {seconds:g} s; {guarantee}")
        with ProgressBar() as bar:
            report = Demo(own, messages, seconds, bar.show, lambda: stop.made).run()
    if as_json:
        print_document(report.as_dict())
    else:
        print_table(("demo", "result"), report.rows(), right=("result",))
    if report.interrupted:
        print_note("stopped")
        raise typer.Exit(stop.exit_code)
    if not report.good:
        raise typer.Exit(1)


@contextmanager
def _opened(given: EndpointOptions) -> Iterator[tuple[Any, Any]]:
    """The store given, or a temporary SQLite file; the transport given, or SQL queues in the store's database."""
    with ExitStack() as stack:
        store = given.store
        if store is None:
            directory = stack.enter_context(TemporaryDirectory(prefix="delaystore-demo-"))
            store = f"sqlite:///{Path(directory) / 'demo.db'}"
        where = replace(given, store=store, transport=given.transport or store, memory=True)
        yield stack.enter_context(closing(where.open_store())), stack.enter_context(closing(where.open_transport()))


class DeliveryCounts:
    """Compares sent with arrived messages. One thread calls `expect`, another `note`."""

    def __init__(self) -> None:
        self._due: dict[str, datetime] = {}
        self._arrived: dict[str, int] = {}
        self.lateness: list[timedelta] = []
        """Arrival less due time, of each message's first arrival; negative: it arrived before it was due."""

    def expect(self, message_id: str, due_time: datetime) -> None:
        """Expect a message that is about to be sent."""
        self._due[message_id] = due_time

    def note(self, message_ids: Iterable[str], now: datetime) -> None:
        """Note messages that arrived at `now`."""
        for message_id in message_ids:
            if message_id not in self._arrived:
                self.lateness.append(now - self._due[message_id])
            self._arrived[message_id] = self._arrived.get(message_id, 0) + 1

    @property
    def delivered(self) -> int:
        """How many different messages arrived."""
        return len(self._arrived)

    @property
    def duplicated(self) -> int:
        """How many messages arrived more than once."""
        return sum(count > 1 for count in list(self._arrived.values()))


@runtime_checkable
class RemovableStore(Protocol):
    """A store that can drop its tables."""

    def remove_infrastructure(self) -> None:
        """Drop the tables, and all waiting messages."""
        ...


@runtime_checkable
class DeletingTransport(Protocol):
    """A transport that can delete queues."""

    def delete(self, queue: str) -> None:
        """Delete `queue` and its messages; does nothing if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class DemoEndpoint:
    """A store, a transport, and the demo's tables and queues there. `exactly_once`: whether the two share a
    database.
    """

    store: DelayedMessageStore
    transport: Transport
    delivery: "DelayedDelivery"
    queue: str
    exactly_once: bool


@contextmanager
def demo_endpoint(
    store: DelayedMessageStore, transport: Transport, warn: Callable[[str], object]
) -> Iterator[DemoEndpoint]:
    """An endpoint and a queue, set up under a unique name; both are removed after the block.

    `warn`: called with the parts that could not be removed.
    """
    name = f"delaystore-demo-{uuid.uuid4().hex[:8]}"
    error_queue = f"{name}-error"
    with ExitStack() as stack:
        exactly_once = transport.shares_transaction_with(store)
        mode = TransactionMode.TRANSACTION_SCOPE if exactly_once else TransactionMode.RECEIVE_ONLY
        settings = DelayedDeliverySettings(transaction_mode=mode, error_queue=error_queue)
        from delaystore.delivery import DelayedDelivery

        delivery = DelayedDelivery(name, store, transport, settings)
        stack.callback(_remove, store, transport, (name, error_queue), warn)
        stack.callback(delivery.stop)
        delivery.setup_infrastructure()
        transport.declare(name)
        yield DemoEndpoint(store, transport, delivery, name, exactly_once)


def _remove(
    store: DelayedMessageStore, transport: Transport, queues: tuple[str, ...], warn: Callable[[str], object]
) -> None:
    """Remove tables and queues; a failure is only a warning, so that the report is shown anyway."""
    try:
        if isinstance(store, RemovableStore):
            store.remove_infrastructure()
        if isinstance(transport, DeletingTransport):
            for queue in queues:
                transport.delete(queue)
    except DelaystoreError as error:
        warn(f"warning: the demo's tables and queues could not be removed: {error}")


_AT_ONCE: Final = 1000
_WAIT: Final = 0.25
"""Seconds."""


class Receiver:
    """Receives messages of `queue`, in a thread of its own. Outages of the transport do not end it."""

    def __init__(self, transport: Transport, queue: str, counts: DeliveryCounts, clock: Clock) -> None:
        self._transport = transport
        self._queue = queue
        self._counts = counts
        self._clock = clock
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="delaystore-demo-receiver", daemon=True)
        self.start: Final = self._thread.start
        """Begin to receive."""
        self.error: TransportError | None = None
        """The last failure; None: there was none."""

    def stop(self, timeout: float) -> None:
        """Receive the messages that are there already, and end. Waits for at most `timeout` seconds."""
        self._stopping = True
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            stopping = self._stopping
            try:
                with self._transport.receive(self._queue, _AT_ONCE, _WAIT) as messages:
                    self._counts.note((message.message_id for message in messages), self._clock.now())
            except TransportError as error:
                self.error = error
                time.sleep(_WAIT)
                messages = []
            if stopping and not messages:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The demo in numbers. `lateness` is sorted: arrival less due time, on the store's clock."""

    sent: int
    delivered: int
    duplicated: int
    lateness: Sequence[timedelta]
    exactly_once: bool
    interrupted: bool

    @property
    def lost(self) -> int:
        """How many were sent and did not arrive. 0 where the demo was interrupted: they may still come."""
        return 0 if self.interrupted else self.sent - self.delivered

    @property
    def early(self) -> int:
        """How many arrived before they were due."""
        return sum(late < timedelta(0) for late in self.lateness)

    @property
    def good(self) -> bool:
        """Whether nothing was lost, duplicated or early."""
        return not (self.lost or self.duplicated or self.early)

    def percentile(self, share: float) -> float | None:
        """The lateness in milliseconds that `share` of the messages did not exceed (nearest rank); None without any."""
        if not self.lateness:
            return None
        rank = max(1, math.ceil(share * len(self.lateness)))
        return round(self.lateness[rank - 1] / timedelta(milliseconds=1), 3)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it; the keys are stable."""
        return {
            "sent": self.sent,
            "delivered": self.delivered,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "early": self.early,
            "lateness_ms": {"p50": self.percentile(0.5), "p99": self.percentile(0.99), "max": self.percentile(1)},
            "exactly_once": self.exactly_once,
            "interrupted": self.interrupted,
        }

    def rows(self) -> list[tuple[str, str]]:
        """As a table has it: (name, number)."""
        counts = [(name, f"{getattr(self, name):,}") for name in ("sent", "delivered", "lost", "duplicated", "early")]
        shares = {"lateness p50": 0.5, "lateness p99": 0.99, "lateness max": 1.0}
        return counts + [(name, _milliseconds(self.percentile(share))) for name, share in shares.items()]


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


GRACE: Final = 30.0
"""Seconds after the last due time; a message that has not arrived by then counts as lost."""
_CHUNK: Final = 1000
_SCHEDULING_RATE: Final = 10_000
"""Messages a second that any store takes; the first message is due once the last should be stored."""
_SHOWN_EVERY: Final = 0.05


@dataclass(slots=True)
class Demo:
    """One run: `messages` messages, due evenly over `seconds`. `stopped`: asked whether to end early."""

    endpoint: DemoEndpoint
    messages: int
    seconds: float
    listener: ProgressListener
    stopped: Callable[[], bool]
    _counts: DeliveryCounts = field(default_factory=DeliveryCounts, init=False)
    _sent: int = field(default=0, init=False)

    def run(self) -> DemoReport:
        """Run to the end, or until asked to stop. Raises what store and transport raise."""
        # asked once; never behind the store's clock, which would make arrivals look early
        clock = ExtrapolatedClock(self.endpoint.store.now, fresh_for=math.inf, never_behind=True)
        receiver = Receiver(self.endpoint.transport, self.endpoint.queue, self._counts, clock)
        lead = 0.5 + self.messages / _SCHEDULING_RATE
        deadline = time.monotonic() + lead + self.seconds + GRACE
        first_due = clock.now() + timedelta(seconds=lead)
        self.endpoint.delivery.start()
        receiver.start()
        try:
            self._schedule(first_due, deadline)
            self._await_arrivals(deadline)
        finally:
            self.endpoint.delivery.stop(timeout=10)
            receiver.stop(timeout=10)
        if receiver.error is not None and not self._counts.delivered:
            raise receiver.error
        return DemoReport(
            sent=self._sent,
            delivered=self._counts.delivered,
            duplicated=self._counts.duplicated,
            lateness=sorted(self._counts.lateness),
            exactly_once=self.endpoint.exactly_once,
            interrupted=self.stopped(),
        )

    def _schedule(self, first_due: datetime, deadline: float) -> None:
        for start in range(0, self.messages, _CHUNK):
            if self.stopped() or time.monotonic() > deadline:
                return
            end = min(start + _CHUNK, self.messages)
            self._sent += self.endpoint.delivery.send_many(self._chunk(range(start, end), first_due))
            self._show()

    def _chunk(self, numbers: Sequence[int], first_due: datetime) -> Iterator[DelayedMessage]:
        for number in numbers:
            message = DelayedMessage(
                message_id=new_message_id(),
                destination=self.endpoint.queue,
                due_time=first_due + timedelta(seconds=self.seconds * number / self.messages),
                body=json.dumps({"number": number}).encode(),
                headers={"kind": "demo"},
            )
            self._counts.expect(message.message_id, message.due_time)
            yield message

    def _await_arrivals(self, deadline: float) -> None:
        while self._counts.delivered < self._sent and not self.stopped() and time.monotonic() < deadline:
            self._show()
            time.sleep(_SHOWN_EVERY)
        self._show()

    def _show(self) -> None:
        self.listener("scheduled", self._sent, self.messages)
        self.listener("delivered", self._counts.delivered, self.messages)
