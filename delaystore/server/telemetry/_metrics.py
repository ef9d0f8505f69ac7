"""OpenTelemetry's metrics: counters of the observer, and gauges that ask the store."""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Final, Protocol
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    Meter,
    MeterProvider,
    Observation,
    get_meter_provider,
)
from typing_extensions import override

from delaystore.calls import Question, SingleFlight
from delaystore.dispatcher import BreakerChange, BreakerState, DispatchObserver, DispatchReport, PassReport, Sending
from delaystore.dispatcher.health import counts_of
from delaystore.errors import DelaystoreError
from delaystore.message import DelayedMessage
from delaystore.processes import WouldBlockError
from delaystore.server.telemetry import _names as names
from delaystore.server.telemetry._names import (
    BACKLOG,
    DESTINATION_NAME,
    DISPATCHERS,
    ERROR_QUEUE_DEPTH,
    FAILING,
    HISTORY_ENTRIES,
    HISTORY_KEPT,
    HISTORY_SIZE,
    LATENESS,
    METRICS,
    OLDEST_OVERDUE,
    OTHER,
    PARKED,
    PAUSED,
    SCOPE,
    STORE_AVAILABLE,
    Metric,
)
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.history import HistoryStatus, StoreWithHistory
from delaystore.transports.abc import Transport

_OBSERVED: Final = tuple(metric for metric in METRICS if metric.kind in ("gauge", "observable counter"))
_Attributes = Mapping[str, str]


class Observed(Protocol):
    """The source of gauges."""

    def observed(self, name: str) -> Iterable[tuple[float, _Attributes]]:
        """The values of the gauge, or observable counter, `name`, each with its attributes."""
        ...


class Gauges:
    """The gauges and observable counters of one meter provider, which takes each once, for however many are read."""

    def __init__(self, meter: Meter) -> None:
        self._observed: WeakSet[Observed] = WeakSet()
        self.add: Final = self._observed.add
        """Read an object, too, as long as it lives."""
        for metric in _OBSERVED:
            is_gauge = metric.kind == "gauge"
            create = meter.create_observable_gauge if is_gauge else meter.create_observable_counter
            create(metric.name, [partial(self._observe, metric.name)], metric.unit, metric.description)

    def _observe(self, name: str, _options: CallbackOptions) -> Iterator[Observation]:
        for each in list(self._observed):
            for value, attributes in each.observed(name):
                yield Observation(value, dict(attributes))


_gauges: Final[WeakKeyDictionary[MeterProvider, Gauges]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def gauges_of(provider: MeterProvider) -> Gauges:
    """The gauges of `provider`, made at the first call."""
    with _lock:
        if provider not in _gauges:
            _gauges[provider] = Gauges(provider.get_meter(SCOPE))
        return _gauges[provider]


class DestinationLabels:
    """The first `limit` destinations have values of their own, the others share OTHER; 0: none has the attribute."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def attributes(self, destination: str | None) -> Mapping[str, str]:
        """The attribute for `destination`; None: several, or unknown."""
        if not self._limit or destination is None:
            return {}
        if destination not in self._known:
            if len(self._known) >= self._limit:
                return {DESTINATION_NAME: OTHER}
            self._known.add(destination)
        return {DESTINATION_NAME: destination}

    def split(
        self, counts: DispatchReport, by_destination: Mapping[str, DispatchReport]
    ) -> Iterable[tuple[Mapping[str, str], DispatchReport]]:
        """The results of a pass, by destination; lost claims have no destination."""
        if not self._limit:
            return [({}, counts)]
        parts = [(self.attributes(name), report) for name, report in by_destination.items()]
        return [*parts, ({}, DispatchReport(claims_lost=counts.claims_lost))] if counts.claims_lost else parts


class LatenessSink(Protocol):
    """Takes the lateness of delivered messages."""

    def add(self, seconds: Sequence[float], attributes: Mapping[str, str]) -> None:
        """Count messages by their lateness."""
        ...


class RecordedLateness:
    """Into a histogram of OpenTelemetry's, whose API takes one value at a time: some 6 µs each."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram

    def add(self, seconds: Sequence[float], attributes: Mapping[str, str]) -> None:
        """Record each."""
        for each in seconds:
            self._histogram.record(each, attributes)


class CountedLateness:
    """The same histogram, counted a pass at a time, in a fiftieth of the time. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[tuple[str, str], ...], list[int]] = {}
        self._sums: dict[tuple[tuple[str, str], ...], float] = {}

    def add(self, seconds: Sequence[float], attributes: Mapping[str, str]) -> None:
        """Count each; a batch comes nearly sorted."""
        if not seconds:
            return
        ordered = sorted(seconds)
        key = tuple(attributes.items())
        up_to = [bisect_right(ordered, bound) for bound in LATENESS.bounds]
        with self._lock:
            former = self._counts.get(key, [0] * (len(LATENESS.bounds) + 1))
            self._counts[key] = [sum(pair) for pair in zip(former, [*up_to, len(ordered)], strict=True)]
            self._sums[key] = self._sums.get(key, 0.0) + sum(ordered)

    def counted(self) -> Sequence[tuple[Mapping[str, str], Sequence[tuple[str, float]], float]]:
        """By attributes: messages up to each bound, as Prometheus writes these, and the sum of seconds."""
        names = [*(str(bound) for bound in LATENESS.bounds), "+Inf"]
        with self._lock:
            return [
                (dict(key), list(zip(names, counts, strict=True)), self._sums[key])
                for key, counts in self._counts.items()
            ]


EVERY: Final = 10.0
"""Seconds for which an answer is good."""
LONGEST_ANSWER: Final = 5.0
"""Seconds after which a question is given up."""
LONGEST_WAIT: Final = 1.0
"""Seconds for which an export waits for an answer; then it gets the former one."""
Reading = Mapping[str, float]
"""Values by the names of metrics; one that is unknown is missing."""
_SILENT: Final[Reading] = {STORE_AVAILABLE.name: 0.0}


class StoreGauges:
    """Asks one store, one question at a time; threads may share it. `error_queue`: looked at through `transport`."""

    def __init__(self, store: DelayedMessageStore, transport: Transport | None, error_queue: str) -> None:
        self._store = store
        self._transport = transport
        self._error_queue = error_queue
        self._asked = SingleFlight("asking for what metrics tell", self._ask)
        self._last = _SILENT

    def latest(self) -> Reading:
        """The last answer, requested again if it is older than EVERY; waits LONGEST_WAIT at most, raises nothing."""
        question = self._asked.question(LONGEST_ANSWER, fresh=EVERY)
        if question.answered_within(LONGEST_WAIT - question.age):
            self._last = _answer_to(question)
        elif question.too_late:
            self._last = _SILENT
        return self._last

    def _ask(self) -> Reading:
        store = self._store
        overdue = store.status().overdue
        found = {STORE_AVAILABLE.name: 1.0, OLDEST_OVERDUE.name: 0.0 if overdue is None else overdue.total_seconds()}
        counts = counts_of(store, self._error_queue)
        depth = self._depth() if counts.error_queue_depth is None else counts.error_queue_depth
        history = self._history()
        values: dict[Metric, float | None] = {
            BACKLOG: None if counts.backlog is None else counts.backlog.messages,
            FAILING: counts.failing,
            PARKED: counts.parked_now,
            PAUSED: None if counts.paused is None else len(counts.paused),
            DISPATCHERS: counts.dispatchers,
            ERROR_QUEUE_DEPTH: depth,
        }
        if history is not None:
            kept = 0.0 if history.kept is None else history.kept.total_seconds()
            values |= {HISTORY_ENTRIES: history.entries, HISTORY_SIZE: history.size, HISTORY_KEPT: kept}
        return found | {metric.name: value for metric, value in values.items() if value is not None}

    def _history(self) -> HistoryStatus | None:
        """The state of the history; None: it is unknown, as to a role that may read the waiting messages alone."""
        try:
            return self._store.history_status() if isinstance(self._store, StoreWithHistory) else None
        except DelaystoreError:
            return None

    def _depth(self) -> int | None:
        """How many messages are in the error queue, asked if no dispatcher has reported it; None: that is unknown."""
        try:
            return None if self._transport is None else self._transport.depth(self._error_queue)
        except DelaystoreError:
            return None


def _answer_to(question: Question[Reading]) -> Reading:
    try:
        return question.answer()
    except Exception:
        return _SILENT


STATES: Final[Mapping[BreakerState, int]] = {
    BreakerState.DISARMED: 0,
    BreakerState.ARMED: 1,
    BreakerState.TRIGGERED: 2,
}
_BREAKERS: Final = ("fetch", "dispatch", "recovery", "store")
_PHASES: Final = ("fetch", "forward", "settle")
_OUTCOMES: Final = tuple(name for name in DispatchReport().counts() if name != "fetched")
_SENT: Final = ("delivered", "moved_to_error_queue", "failed", "deferred", "unconfirmed")
"""Outcomes of attempts to forward."""


class OpenTelemetryMetrics(DispatchObserver):
    """Measures sending and dispatching; give it to `DelayedDelivery` or `Dispatcher` as their observer.

    It needs OpenTelemetry's API only; without a meter provider nothing is measured.

    Args:
        endpoint: The value of the attribute `delaystore.endpoint`.
        destinations: Maximum number of destinations with counters of their own; the others are `other`. 0: no metrics
            by destination.
        meter_provider: Where metrics go; None: the global one, which is to be set before.
        lateness: Where the lateness of each message goes; None: to the meter, too.

    """

    def __init__(
        self,
        endpoint: str,
        *,
        destinations: int = 0,
        meter_provider: MeterProvider | None = None,
        lateness: LatenessSink | None = None,
    ) -> None:
        provider = get_meter_provider() if meter_provider is None else meter_provider
        meter = provider.get_meter(names.SCOPE)
        self._endpoint: Final[Mapping[str, str]] = {names.ENDPOINT: endpoint}
        self._destinations: Final = DestinationLabels(destinations)
        self._messages = _counter(meter, names.MESSAGES)
        self._undone = _counter(meter, names.PASSES_UNDONE)
        self._sent = _counter(meter, names.SENT_MESSAGES)
        self._durations = _histogram(meter, names.PASS_DURATION)
        self._batches = _histogram(meter, names.PASS_MESSAGES)
        self._operations = _histogram(meter, names.OPERATION_DURATION)
        self._lateness: LatenessSink = lateness or RecordedLateness(_histogram(meter, names.LATENESS))
        self._states = dict.fromkeys(_BREAKERS, BreakerState.DISARMED)
        self._readings: StoreGauges | None = None
        for outcome in _OUTCOMES:  # a counter whose first value is 1 shows no growth to a query for its increase
            self._messages.add(0, {**self._endpoint, names.OUTCOME: outcome})
        self._undone.add(0, self._endpoint)
        gauges_of(provider).add(self)

    def watch(self, store: DelayedMessageStore, transport: Transport | None = None, error_queue: str = "error") -> None:
        """Have the gauges report on a store, which is asked in a thread, every 10 s at most, when they are read.

        Args:
            store: A store for threads, initialized for the endpoint, as by DelayedDelivery.
            transport: Reports the depth of `error_queue` where no dispatcher of the endpoint does; None: it is then
                unknown.
            error_queue: The error queue's name.

        """
        self._readings = StoreGauges(store, transport, error_queue)

    @override
    def pass_ended(self, report: PassReport) -> None:
        if report.error is not None:
            self._undone.add(1, {**self._endpoint, names.ERROR_TYPE: type(report.error).__name__})
        elif not report.counts.fetched:
            return
        for phase in _PHASES:
            self._durations.record(getattr(report.durations, phase), {**self._endpoint, names.PHASE: phase})
        if report.error is not None:
            return
        self._batches.record(report.counts.fetched, self._endpoint)
        self._operations.record(report.durations.forward, self._operation(names.FORWARD))
        self._lateness.add(report.lateness, self._endpoint)
        for destination, counts in self._destinations.split(report.counts, report.by_destination):
            self._count(counts, destination)

    @override
    def breaker_changed(self, change: BreakerChange) -> None:
        self._states[change.name] = change.after

    @override
    def send_begins(self, message: DelayedMessage | None) -> Sending:
        return MeasuredSending(self)

    def sent(self, count: int, destination: str | None, seconds: float, error: BaseException | None) -> None:
        """Measure a call of `send` or `send_many`.

        Args:
            count: How many messages it stored.
            destination: Their destination; None: several.
            seconds: How long it took.
            error: Its exception; None: it returned.

        """
        attributes = {**self._operation(names.SEND), **self._destinations.attributes(destination)}
        if error is not None:
            attributes[names.ERROR_TYPE] = type(error).__name__
        self._operations.record(seconds, attributes)
        if count:
            self._sent.add(count, attributes)

    def observed(self, name: str) -> Iterable[tuple[float, Mapping[str, str]]]:
        """The values of a gauge, for the exporter.

        Args:
            name: The gauge's name.

        Returns:
            Each value with its attributes; none where it is not known.

        """
        if name == names.BREAKER_STATE.name:
            return self._breakers()
        reading = {} if self._readings is None else self._readings.latest()
        return [(reading[name], self._endpoint)] if name in reading else []

    def _breakers(self) -> Iterator[tuple[float, Mapping[str, str]]]:
        for name, state in self._states.items():
            yield STATES[state], {**self._endpoint, names.BREAKER: name}

    def _count(self, counts: DispatchReport, destination: Mapping[str, str]) -> None:
        operation = self._operation(names.FORWARD)
        for outcome in _OUTCOMES:
            count = getattr(counts, outcome)
            if not count:
                continue
            self._messages.add(count, {**self._endpoint, names.OUTCOME: outcome, **destination})
            if outcome in _SENT:
                error = {} if outcome == "delivered" else {names.ERROR_TYPE: outcome}
                self._sent.add(count, {**operation, **error, **destination})

    def _operation(self, name: str) -> dict[str, str]:
        return {
            names.MESSAGING_SYSTEM: names.SYSTEM,
            names.OPERATION_NAME: name,
            names.OPERATION_TYPE: "send",
            **self._endpoint,
        }


class MeasuredSending(Sending):
    """One call of `send` or `send_many`, measured."""

    def __init__(self, metrics: OpenTelemetryMetrics) -> None:
        self._metrics = metrics
        self._began = monotonic()
        self._count = 0
        self._destination: str | None = None

    @property
    def destination(self) -> str | None:
        """The destination of all messages so far; None: they have several."""
        return self._destination

    @property
    def count(self) -> int:
        """How many messages there were so far."""
        return self._count

    @override
    def stamped(self, message: DelayedMessage) -> DelayedMessage:
        if not self._count:
            self._destination = message.destination
        elif self._destination != message.destination:
            self._destination = None
        self._count += 1
        return message

    @override
    def ended(self, error: BaseException | None) -> None:
        if not isinstance(error, WouldBlockError):
            self._metrics.sent(self._count, self._destination, monotonic() - self._began, error)


def _counter(meter: Meter, metric: names.Metric) -> Counter:
    return meter.create_counter(metric.name, metric.unit, metric.description)


def _histogram(meter: Meter, metric: names.Metric) -> Histogram:
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.bounds
    )
