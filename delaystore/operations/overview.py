"""State of an endpoint, asked within a time limit, and the conditions of health."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from time import monotonic
from typing import Any, Final, Self

from delaystore.breakers import BreakerState
from delaystore.calls import Call, Question
from delaystore.dispatcher.health import MOST_COUNTED, OVERDUE_ALARM, reported_depth
from delaystore.errors import (
    DelaystoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
    TransportUnavailableError,
)
from delaystore.operations._search import EndpointAccess
from delaystore.processes import off_the_loop, on_a_loop
from delaystore.stores.abc import Count, DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.documents import LatenessHistogram, field, percentiles, record
from delaystore.stores.history import HistoryStatus, StoreWithHistory
from delaystore.stores.operable import OperableDelayedMessageStore, StoreWithLoads
from delaystore.stores.records import Activity, Destination, DispatcherRecord, IngressRecord, Operation, OperationState
from delaystore.text import counted, duration_text, overdue_text, up_to
from delaystore.transports.abc import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """Activity of the last `minutes`, and of the minute that has begun.

    Attributes:
        minutes: The whole minutes.
        seconds: How long ago the first of them began.
        done: What dispatchers did since.

    """

    minutes: int
    seconds: float
    done: Activity

    @classmethod
    def of(cls, activity: Sequence[Activity], now: datetime, minutes: int) -> Self:
        """Sum up the activity of the last minutes.

        Args:
            activity: The activity, by minute.
            now: The present, an aware datetime.
            minutes: How many whole minutes count, besides the one that has begun.

        """
        begun = now.replace(second=0, microsecond=0)
        since = begun - timedelta(minutes=minutes)
        done = reduce(add, (each for each in activity if each.minute >= since), Activity(minute=since))
        return cls(minutes=minutes, seconds=(now - since).total_seconds(), done=done)

    @property
    def rate(self) -> float:
        """Messages delivered a second."""
        return self.done.delivered / self.seconds

    @property
    def rates(self) -> Mapping[str, float]:
        """The same by destination."""
        return {name: count / self.seconds for name, count in self.done.by_destination.items()}

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON; lateness in seconds."""
        return {
            "minutes": self.minutes,
            "delivered": self.done.delivered,
            "failed": self.done.failed,
            "moved_to_error_queue": self.done.moved_to_error_queue,
            "expired": self.done.expired,
            "rate": round(self.rate, 3),
            "lateness": percentiles(self.done.lateness),
        }


RATE_OVER: Final = 5
"""Minutes over which `Overview.rate` is measured."""


def history_gaps(status: HistoryStatus | None, dispatchers: Sequence[DispatcherRecord]) -> Sequence[str]:
    """Why messages get no entry in a history that is kept, a clause with its remedy for each of the dispatchers."""
    if status is None or status.kept is None:
        return []
    return [
        f"dispatcher {each.name} (release {each.version}) makes no entries of the history; upgrade it, or grant its "
        "database user SELECT on the table that ends with _settings"
        for each in dispatchers
        if not each.makes_entries
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The known facts about an endpoint. None: the store did not answer in time, or cannot tell.

    Attributes:
        endpoint: Its name.
        error_queue: The name of its error queue.
        now: The time by the store's clock.
        waiting: Waiting messages.
        first_due: When the first message is due; None also: no message waits.
        overdue: For how long the oldest message has been due; zero: no message is overdue.
        failing: Waiting messages that failed before; counted up to 10,000, at least this number where not `exact`.
        parked: Due messages of paused destinations, counted as `failing`.
        destinations: Destinations that are paused, limited or resuming.
        paused_loads: The ids of paused loads.
        operations: Operations that run, or may be resumed.
        dispatchers: Dispatchers that live.
        ingresses: Ingresses that live, and for each queue that has none any more the last one.
        activity: What dispatchers did in the last hour, by minute; idle minutes are left out.
        history: Whether a history is kept, since when, and its size; None also: the store cannot keep one.
        error_queue_depth: Messages in the error queue, as the transport says, or else the dispatchers.
        error_queue_seen: When the broker said so.
        operable: False: the store's tables are of an earlier release; None also: it offers no operations.
        read_only: Why nothing can be stored; None: no reason is known.
        problem: Why the store did not answer; None: it did.
        blocking_defects: Defects of its tables by which messages cannot be stored or dispatched, a line with its
            remedy each.
        remarks: What else was found wrong while asking, in plain sentences.

    """

    endpoint: str
    error_queue: str
    now: datetime | None = None
    waiting: Count | None = None
    first_due: datetime | None = None
    overdue: timedelta | None = None
    failing: Count | None = None
    parked: Count | None = None
    destinations: Sequence[Destination] | None = None
    paused_loads: Sequence[str] | None = None
    operations: Sequence[Operation] | None = None
    dispatchers: Sequence[DispatcherRecord] | None = None
    ingresses: Sequence[IngressRecord] | None = None
    activity: Sequence[Activity] | None = None
    history: HistoryStatus | None = None
    error_queue_depth: int | None = None
    error_queue_seen: datetime | None = None
    operable: bool | None = None
    read_only: str | None = None
    problem: str | None = None
    blocking_defects: Sequence[str] = ()
    remarks: Sequence[str] = ()

    def recent(self, minutes: int) -> Recent | None:
        """Sum up the activity of the last minutes.

        Args:
            minutes: How many whole minutes count, 60 at most, besides the one that has begun.

        Returns:
            The sum; None: the activity is not known.

        """
        if self.activity is None or self.now is None:
            return None
        return Recent.of(self.activity, self.now, minutes)

    @property
    def rate(self) -> float | None:
        """Messages delivered a second, over the last five minutes."""
        recent = self.recent(RATE_OVER)
        return None if recent is None else recent.rate

    @property
    def lateness(self) -> LatenessHistogram | None:
        """Of all that was delivered in the last hour."""
        if self.activity is None:
            return None
        return reduce(add, (each.lateness for each in self.activity), LatenessHistogram())

    @property
    def expired(self) -> int | None:
        """Messages that have expired in the last hour."""
        return None if self.activity is None else sum(each.expired for each in self.activity)

    @property
    def paused(self) -> Sequence[Destination] | None:
        """The destinations that are paused."""
        return None if self.destinations is None else [each for each in self.destinations if each.paused]

    @property
    def limited(self) -> Sequence[Destination] | None:
        """The destinations that have a limit of messages a second."""
        return None if self.destinations is None else [each for each in self.destinations if each.max_rate is not None]

    @property
    def history_gaps(self) -> Sequence[str]:
        """See `history_gaps`."""
        return history_gaps(self.history, self.dispatchers or ())

    @property
    def store_problem(self) -> str | None:
        """Why the store cannot say how it is, or is unavailable; None: it can, and nothing is known to hinder it."""
        return self.problem if self.now is None else self.read_only or "; ".join(self.blocking_defects) or None

    @property
    def wrong(self) -> Sequence[str]:
        """Faults, in plain sentences, the worst first; empty: nothing is known to be."""
        return [
            *self._of_store(),
            *self._of_dispatching(),
            *(sentence for each in self.ingresses or () for sentence in self._of_ingress(each)),
            *self._of_failures(),
            *self.remarks,
        ]

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON: times in ISO 8601, durations in seconds, None where nothing is known.

        `delaystore status --json` and `health --json` have these facts under the same names.
        """
        activity = None if self.activity is None else [_minute(each) for each in self.activity]
        return {
            "endpoint": self.endpoint,
            "now": field(self.now),
            "wrong": list(self.wrong),
            "waiting": None if self.waiting is None else self.waiting.messages,
            "exact": None if self.waiting is None else self.waiting.exact,
            "first_due": field(self.first_due),
            "oldest_overdue": self.overdue.total_seconds() if self.overdue else None,
            "failing": None if self.failing is None else self.failing.messages,
            "parked": None if self.parked is None else self.parked.messages,
            "paused": None if self.paused is None else [each.name for each in self.paused],
            "error_queue": self.error_queue,
            "error_queue_depth": self.error_queue_depth,
            "error_queue_seen": field(self.error_queue_seen),
            "destinations": field(self.destinations),
            "paused_loads": field(self.paused_loads),
            "operations": field(self.operations),
            "dispatchers": field(self.dispatchers),
            "ingresses": None if self.ingresses is None else [self._ingress(each) for each in self.ingresses],
            "rate": self.rate,
            "lateness": field(self.lateness),
            "expired": self.expired,
            "activity": activity,
            "history": field(self.history),
            "store": self.problem or self.store_problem,
            "operable": self.operable,
        }

    def is_offline(self, ingress: IngressRecord) -> bool:
        """Whether an ingress sends no heartbeats any more: it died, or cannot reach the store.

        Args:
            ingress: The ingress.

        Returns:
            False also where the store's time is not known.

        """
        return self.now is not None and ingress.is_offline(self.now)

    def _ingress(self, ingress: IngressRecord) -> dict[str, Any]:
        return {**record(ingress), "offline": self.is_offline(ingress)}

    def _of_store(self) -> Iterator[str]:
        if self.problem is not None:
            yield f"The store does not report its state: {self.problem}."
        if self.read_only is not None:
            yield f"Nothing can be stored: {self.read_only}."
        yield from (f"Messages cannot be stored or dispatched: {each}." for each in self.blocking_defects)
        if self.operable is False and not self.blocking_defects:
            yield "The tables are of an earlier release; `delaystore setup` upgrades them."

    def _of_dispatching(self) -> Iterator[str]:
        if self.overdue is not None and self.overdue >= OVERDUE_ALARM:
            yield f"{overdue_text(self.overdue).capitalize()}."
        if self.dispatchers is not None and not self.dispatchers and self.waiting is not None and self.waiting.messages:
            yield "Messages are waiting, but no dispatcher reports that it is running."
        for each in self.dispatchers or ():
            who = f"dispatcher {each.name} (process {each.pid} on {each.host})"
            if each.problem is not None:
                yield f"The {who} delivers no messages: {each.problem}."
            for name, state in each.breakers.items():
                if state == BreakerState.TRIGGERED:
                    yield f"The {who} has a triggered breaker: {name}."
        yield from (f"The {gap}." for gap in self.history_gaps)

    def _of_ingress(self, ingress: IngressRecord) -> Iterator[str]:
        who = f"ingress of {ingress.queue!r} (process {ingress.pid} on {ingress.host})"
        if self.now is not None and ingress.is_offline(self.now):
            yield f"The {who} is offline: no heartbeat for {duration_text(self.now - ingress.heartbeat)}."
        else:
            if ingress.problem is not None:
                yield f"The {who} does not consume: {ingress.problem}."
            for name, state in ingress.breakers.items():
                if state == BreakerState.TRIGGERED:
                    yield f"The {who} has a triggered breaker: {name}."
            if ingress.unacknowledged:
                messages = counted(ingress.unacknowledged, "message")
                yield f"The {who} leaves {messages} unacknowledged: {ingress.why_unacknowledged}."
        if ingress.rejected_depth:
            yield f"The rejected queue {ingress.rejected_queue!r} holds {counted(ingress.rejected_depth, 'message')}."

    def _of_failures(self) -> Iterator[str]:
        if self.error_queue_depth:
            yield f"The error queue {self.error_queue!r} holds {counted(self.error_queue_depth, 'message')}."
        if self.failing is not None and self.failing.messages:
            number = up_to(self.failing.messages, "message", exact=self.failing.exact)
            yield f"{number} failed so far and will be retried."


def _minute(activity: Activity) -> dict[str, Any]:
    """With its rate, in messages a second."""
    return {**record(activity), "rate": activity.delivered / 60}


_HOUR: Final = timedelta(hours=1)
_PURPOSE: Final = "asking for an overview"
_REMARKS: Final = "remarks"
"""The key for the facts that the store did not allow to be read."""


class Inquiry:
    """Asks an endpoint's store and transport for their state; facts without an answer in time stay None.

    The store is asked one question after the other, the quick ones first, by one thread: a store that hangs keeps that
    one, and not one for each caller. On an event loop the loop itself asks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Any] = {}
        self._question: Question[None] | None = None

    def overview(self, access: EndpointAccess, timeout: float) -> Overview:
        """The answers within about `timeout` seconds; raises nothing."""
        ends, queue, transport = monotonic() + timeout, access.settings.error_queue, access.transport
        depth = None if transport is None else _depth(transport, queue, timeout)
        found = self._asked(access, timeout)
        unknown, remarks = found.pop(_REMARKS, []), []
        if depth is not None:
            try:
                found["error_queue_depth"] = off_the_loop("delaystore-depth", depth.answer)
                found["error_queue_seen"] = found.get("now")
            except Exception as error:
                late = "the broker does not answer in time" if depth.too_late else str(error) or type(error).__name__
                remarks.append(f"The depth of the error queue {queue!r} is unknown: {late}.")
        if found.get("error_queue_depth") is None:
            reported = reported_depth(found.get("dispatchers") or (), queue)
            found["error_queue_depth"], found["error_queue_seen"] = reported
        if transport is not None and found.get("ingresses") and not remarks:
            found["ingresses"] = _looked_into(transport, found["ingresses"], found["now"], ends - monotonic())
        return Overview(endpoint=access.endpoint, error_queue=queue, remarks=[*unknown, *remarks], **found)

    def _asked(self, access: EndpointAccess, timeout: float) -> dict[str, Any]:
        """The store's answers, by the names of Overview's fields."""
        if on_a_loop():
            found: dict[str, Any] = {}
            try:
                with Call(_PURPOSE, timeout):
                    _ask(access, found)
            except Exception as error:
                found["problem"] = str(error) or type(error).__name__
            return found
        found, question = self._asking(access, timeout)
        try:
            question.answer()
        except Exception as error:
            return {**found, "problem": str(error) or type(error).__name__}
        return dict(found)

    def _asking(self, access: EndpointAccess, timeout: float) -> tuple[dict[str, Any], Question[None]]:
        """The question that is asked at present, and the answers so far."""
        with self._lock:
            if self._question is None or not self._question.open:
                found: dict[str, Any] = {}
                self._found = found
                self._question = Question(_PURPOSE, lambda: _ask(access, found), timeout)
            return self._found, self._question


def _depth(transport: Transport, queue: str, timeout: float) -> Question[int | None]:
    return Question("asking for the error queue", lambda: transport.depth(queue), timeout)


def _looked_into(
    transport: Transport, ingresses: Sequence[IngressRecord], now: datetime, seconds: float
) -> Sequence[IngressRecord]:
    """The same with the depths of their rejected queues as the broker reports them, where it does."""
    queues = {each.rejected_queue for each in ingresses}
    question = Question("asking for rejected queues", lambda: _depths(transport, queues), max(0.0, seconds))
    try:
        depths = off_the_loop("delaystore-depth", question.answer)
    except StoreUnavailableError:  # there was no answer in time
        return ingresses
    return [
        replace(each, rejected_depth=depths[each.rejected_queue], rejected_seen=now)
        if each.rejected_queue in depths
        else each
        for each in ingresses
    ]


def _depths(transport: Transport, queues: Iterable[str]) -> Mapping[str, int]:
    """How many messages are in those queues that there are."""
    found: dict[str, int] = {}
    for queue in queues:
        try:
            depth = transport.depth(queue)
        except TransportUnavailableError:
            break
        except DelaystoreError:  # no queue for this transport, which need not be the broker of the ingress
            continue
        if depth is not None:
            found[queue] = depth
    return found


def _ask(access: EndpointAccess, found: dict[str, Any]) -> None:
    """Put the store's answers into `found`, as they come."""
    if not on_a_loop():  # there the caller does that, who waits without blocking the loop
        access.prepare()
    store = access.store
    status = store.status()
    found.update(now=status.now, first_due=status.first_due, read_only=status.read_only)
    found["overdue"] = status.overdue or timedelta(0)
    operable = store.is_operable if isinstance(store, OperableDelayedMessageStore) else None
    found["operable"] = operable
    found["blocking_defects"] = store.blocking_defects()
    for name, what, ask in _questions(store, status.now, operable=bool(operable)):
        try:
            found[name] = ask()
        except (StorePermissionError, StoreSetupError) as error:  # a role for monitoring, or a table that is missing
            if not found["blocking_defects"]:
                found.setdefault(_REMARKS, []).append(f"It is unknown {what}: {error}.")


def _questions(
    store: DelayedMessageStore, now: datetime, *, operable: bool
) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """The names of fields, their meaning, and how to ask for them."""
    if isinstance(store, OperableDelayedMessageStore) and operable:
        yield "dispatchers", "which dispatchers run", store.dispatchers
        yield "ingresses", "which ingresses run", store.ingresses
        yield "destinations", "which destinations are paused or limited", store.destinations
        if isinstance(store, StoreWithLoads):
            yield "paused_loads", "which loads are paused", store.paused_loads
        yield (
            "operations",
            "which operations run",
            lambda: [each for each in store.operations() if each.state is OperationState.RUNNING],
        )
        yield "activity", "what was dispatched in the last hour", lambda: store.activity(now - _HOUR)
        if isinstance(store, StoreWithHistory):
            yield "history", "whether a history is kept", store.history_status
    if isinstance(store, ManagedDelayedMessageStore):
        yield "waiting", "how many messages wait", store.estimate_count
    if isinstance(store, OperableDelayedMessageStore) and operable:
        yield "failing", "how many messages are failing", lambda: _up_to_most(store.count_failing)
        yield "parked", "how many messages are parked", lambda: _up_to_most(store.count_parked)


def _up_to_most(count: Callable[[int], int]) -> Count:
    return Count(number := count(MOST_COUNTED), exact=number < MOST_COUNTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCriteria:
    """The conditions of a healthy endpoint, besides a store that answers and can be written.

    Attributes:
        max_overdue: For how long a message may be overdue at most.
        dispatcher: Whether a dispatcher must be running.

    """

    max_overdue: timedelta = OVERDUE_ALARM
    dispatcher: bool = False

    def unmet(self, overview: Overview) -> Iterator[str]:
        """Find the criteria that an endpoint does not meet.

        Args:
            overview: The endpoint.

        Returns:
            The problems, a clause each; a value that is unknown because there is no answer counts as good.

        """
        if overview.overdue is not None and overview.overdue > self.max_overdue:
            yield overdue_text(overview.overdue)
        if self.dispatcher and not overview.dispatchers:
            known = overview.dispatchers is not None
            yield "no dispatcher is running" if known else "it is unknown whether a dispatcher is running"
