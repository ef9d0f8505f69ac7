"""Metrics of what is sent and dispatched, by OpenTelemetry's API."""

from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import Final

from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider, get_meter_provider
from typing_extensions import override

from delaystore.bridge import WouldBlockError
from delaystore.dispatcher import BreakerChange, BreakerState, DispatchObserver, DispatchReport, PassReport, Sending
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.telemetry import _names as names
from delaystore.telemetry._destinations import Destinations
from delaystore.telemetry._gauges import gauges_of
from delaystore.telemetry._lateness import LatenessSink, RecordedLateness
from delaystore.telemetry._readings import StoreReadings
from delaystore.transports.abc import Transport

STATES: Final[Mapping[BreakerState, int]] = {
    BreakerState.DISARMED: 0,
    BreakerState.ARMED: 1,
    BreakerState.TRIGGERED: 2,
}
_BREAKERS: Final = ("fetch", "dispatch", "recovery", "store")
_PHASES: Final = ("fetch", "forward", "settle")
_OUTCOMES: Final = tuple(name for name in DispatchReport().counts() if name != "fetched")
_SENT: Final = ("delivered", "moved_to_error_queue", "failed", "gave_way", "unsettled")
"""Outcomes of attempts to forward."""


class OpenTelemetryMetrics(DispatchObserver):
    """Measures sending and dispatching; give it to `DelayedDelivery` or `Dispatcher` as their observer.

    `endpoint`: the value of the attribute `delaystore.endpoint`. `destinations`: of how many destinations counters tell
    by name, those beyond being `other`; 0: destinations are not told apart. `meter_provider` None: the global one,
    which is to be set before. `lateness`: where the lateness of each message goes; None: to the meter, too.

    It needs OpenTelemetry's API only; without a meter provider nothing is measured.
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
        self._destinations: Final = Destinations(destinations)
        self._messages = _counter(meter, names.MESSAGES)
        self._undone = _counter(meter, names.PASSES_UNDONE)
        self._sent = _counter(meter, names.SENT_MESSAGES)
        self._durations = _histogram(meter, names.PASS_DURATION)
        self._batches = _histogram(meter, names.PASS_MESSAGES)
        self._operations = _histogram(meter, names.OPERATION_DURATION)
        self._lateness: LatenessSink = lateness or RecordedLateness(_histogram(meter, names.LATENESS))
        self._states = dict.fromkeys(_BREAKERS, BreakerState.DISARMED)
        self._readings: StoreReadings | None = None
        for outcome in _OUTCOMES:  # a counter whose first value is 1 has not grown, to whoever asks by how much it has
            self._messages.add(0, {**self._endpoint, names.OUTCOME: outcome})
        self._undone.add(0, self._endpoint)
        gauges_of(provider).add(self)

    def watch(self, store: DelayedMessageStore, transport: Transport | None = None, error_queue: str = "error") -> None:
        """Have the gauges tell of `store`, which is asked every 10 s at most, when they are read, and in a thread.

        `transport`: tells how deep `error_queue` is, where no dispatcher of the endpoint does. The store is one for
        threads, and initialized for the endpoint, as by DelayedDelivery.
        """
        self._readings = StoreReadings(store, transport, error_queue)

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
        """Measure a call of `send` or `send_many`; `destination` None: several."""
        attributes = {**self._operation(names.SEND), **self._destinations.attributes(destination)}
        if error is not None:
            attributes[names.ERROR_TYPE] = type(error).__name__
        self._operations.record(seconds, attributes)
        if count:
            self._sent.add(count, attributes)

    def observed(self, name: str) -> Iterable[tuple[float, Mapping[str, str]]]:
        """The values of a gauge, for whoever exports."""
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
        """That of all messages so far; None: they have several."""
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
