"""OpenTelemetry's metrics of sending and dispatching, read by the SDK's own reader."""

import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import BreakerChange, BreakerState, Dispatcher
from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    StorePermissionError,
    StoreUnavailableError,
)
from delaystore.server.telemetry import MetricsServer, OpenTelemetryMetrics
from delaystore.server.telemetry import _metrics as readings
from delaystore.server.telemetry import _names as names
from delaystore.server.telemetry._metrics import CountedLateness, RecordedLateness
from delaystore.stores.abc import StoreStatus
from delaystore.stores.history import HistoryStatus
from delaystore.testing import SettableClock
from tests.dispatching import (
    NOON,
    PATIENCE,
    REFUSED,
    UNROUTABLE,
    CountingStore,
    FiveMethodStore,
    ScriptedTransport,
    message,
    settings,
    wait_until,
)


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> Iterator[MeterProvider]:
    provider = MeterProvider([reader])
    yield provider
    provider.shutdown()


def read(reader: InMemoryMetricReader) -> Mapping[str, Metric]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def points(metric: Metric, *attributes: str) -> dict[tuple[object, ...], Any]:
    """The values (of histograms, the counts) by the values of `attributes`; zeros are left out."""
    return {
        tuple(point.attributes.get(name) for name in attributes): value
        for point in metric.data.data_points
        if (value := getattr(point, "value", getattr(point, "count", None)))
    }


def test_counters_tell_of_outcomes(
    reader: InMemoryMetricReader, provider: MeterProvider, store: CountingStore, transport: ScriptedTransport
) -> None:
    transport.outcomes |= {"full": REFUSED, "nowhere": UNROUTABLE}
    store.store_many([message("a"), message("b"), message("c", "full"), message("d", "nowhere")])
    observer = OpenTelemetryMetrics("sales", meter_provider=provider)
    Dispatcher(store, transport, settings(), endpoint="sales", observer=observer).dispatch_due()
    found = read(reader)
    assert points(found["delaystore.messages"], names.ENDPOINT, names.OUTCOME, names.DESTINATION_NAME) == {
        ("sales", "delivered", None): 2,
        ("sales", "failed", None): 1,
        ("sales", "moved_to_error_queue", None): 1,
    }
    assert points(found["messaging.client.sent.messages"], names.OPERATION_NAME, names.ERROR_TYPE) == {
        ("forward", None): 2,
        ("forward", "failed"): 1,
        ("forward", "moved_to_error_queue"): 1,
    }
    assert points(found["delaystore.pass.messages"]) == {(): 1}  # the idle pass behind it is left out
    assert points(found["delaystore.pass.duration"], names.PHASE) == {("fetch",): 1, ("forward",): 1, ("settle",): 1}
    assert points(found["messaging.client.operation.duration"], names.OPERATION_NAME) == {("forward",): 1}


def test_expired_messages_are_an_outcome(
    reader: InMemoryMetricReader, provider: MeterProvider, store: CountingStore, transport: ScriptedTransport
) -> None:
    due = store.now() - timedelta(hours=1)
    store.store(message("late", due_time=due, not_after=due + timedelta(minutes=1)))
    observer = OpenTelemetryMetrics("sales", meter_provider=provider)
    Dispatcher(store, transport, settings(), endpoint="sales", observer=observer).dispatch_due()
    found = read(reader)
    assert points(found["delaystore.messages"], names.OUTCOME) == {("expired",): 1}
    assert "messaging.client.sent.messages" not in found


def test_every_outcome_is_there_from_the_beginning(reader: InMemoryMetricReader, provider: MeterProvider) -> None:
    observer = OpenTelemetryMetrics("sales", meter_provider=provider)
    data = read(reader)["delaystore.messages"].data
    assert {(point.attributes[names.OUTCOME], point.value) for point in data.data_points} >= {
        ("moved_to_error_queue", 0),
        ("delivered", 0),
        ("claims_lost", 0),
    }
    del observer


def test_destinations_are_told_apart_up_to_a_limit(
    reader: InMemoryMetricReader, provider: MeterProvider, store: CountingStore, transport: ScriptedTransport
) -> None:
    observer = OpenTelemetryMetrics("sales", destinations=2, meter_provider=provider)
    delivery = DelayedDelivery("sales", store, observer=observer)
    for number in range(5):
        delivery.send(f"queue-{number}", b"", delay=0)
    delivery.send_many([message("a", "queue-0"), message("b", "queue-1")])
    Dispatcher(store, transport, settings(), endpoint="sales", observer=observer).dispatch_due()
    found = read(reader)
    expected = {("queue-0",): 2, ("queue-1",): 2, ("other",): 3}
    assert points(found["delaystore.messages"], names.DESTINATION_NAME) == expected
    sent = points(found["messaging.client.sent.messages"], names.OPERATION_NAME, names.DESTINATION_NAME)
    assert sent == {
        ("send", "queue-0"): 1,
        ("send", "queue-1"): 1,
        ("send", "other"): 3,
        ("send", None): 2,
        ("forward", "queue-0"): 2,
        ("forward", "queue-1"): 2,
        ("forward", "other"): 3,
    }


def test_the_histogram_of_lateness_has_each_message(
    reader: InMemoryMetricReader, provider: MeterProvider, store: CountingStore, transport: ScriptedTransport
) -> None:
    store.store_many([message("a", due_time=NOON - timedelta(seconds=9)), message("b")])
    observer = OpenTelemetryMetrics("sales", meter_provider=provider)
    Dispatcher(store, transport, settings(), endpoint="sales", observer=observer).dispatch_due()
    (point,) = read(reader)["delaystore.lateness"].data.data_points
    assert (point.count, point.sum) == (2, 9.0)
    assert tuple(point.explicit_bounds) == names.LATENESS.bounds
    assert point.bucket_counts[names.LATENESS.bounds.index(10.0)] == 1


def test_counting_a_batch_is_as_recording_each(reader: InMemoryMetricReader, provider: MeterProvider) -> None:
    histogram = provider.get_meter("test").create_histogram(
        "lateness", explicit_bucket_boundaries_advisory=names.LATENESS.bounds
    )
    recorded, counted = RecordedLateness(histogram), CountedLateness()
    for batch in ([0.0, 0.001, 0.0011, 7.0, 86400.0, 90000.0], [], [2.5, 2.5, 0.3]):
        recorded.add(batch, {"a": "b"})
        counted.add(batch, {"a": "b"})
    (point,) = read(reader)["lateness"].data.data_points
    ((attributes, buckets, total),) = counted.counted()
    up_to = [sum(point.bucket_counts[: number + 1]) for number in range(len(point.bucket_counts))]
    assert [count for _, count in buckets] == up_to
    assert (attributes, total) == ({"a": "b"}, pytest.approx(point.sum))  # `sum` is more exact than `+` since 3.12


def test_sends_are_counted_and_timed(
    reader: InMemoryMetricReader, provider: MeterProvider, store: CountingStore
) -> None:
    delivery = DelayedDelivery("sales", store, observer=OpenTelemetryMetrics("sales", meter_provider=provider))
    delivery.send("billing", b"", delay=1, message_id="a")
    delivery.send_many([message("b"), message("c")])
    with pytest.raises(DuplicateMessageError):
        delivery.send("billing", b"", delay=1, message_id="a")
    found = read(reader)
    assert points(found["messaging.client.sent.messages"], names.OPERATION_NAME, names.ERROR_TYPE) == {
        ("send", None): 3,
        ("send", "DuplicateMessageError"): 1,
    }
    assert points(found["messaging.client.operation.duration"], names.ERROR_TYPE) == {
        (None,): 2,
        ("DuplicateMessageError",): 1,
    }


def test_a_pass_that_was_undone_counts_by_its_error(
    reader: InMemoryMetricReader, provider: MeterProvider, store: CountingStore, transport: ScriptedTransport
) -> None:
    observer = OpenTelemetryMetrics("sales", meter_provider=provider)
    dispatcher = Dispatcher(store, transport, settings(), endpoint="sales", observer=observer)
    store.error = StoreUnavailableError("the database is down")
    with pytest.raises(StoreUnavailableError):
        dispatcher.dispatch_due()
    assert points(read(reader)["delaystore.passes.undone"], names.ERROR_TYPE) == {("StoreUnavailableError",): 1}


def test_breakers_are_gauges(reader: InMemoryMetricReader, provider: MeterProvider) -> None:
    observer = OpenTelemetryMetrics("sales", meter_provider=provider)
    observer.breaker_changed(BreakerChange(name="fetch", before=BreakerState.ARMED, after=BreakerState.TRIGGERED))
    data = read(reader)["delaystore.breaker.state"].data
    states = {point.attributes[names.BREAKER]: point.value for point in data.data_points}
    assert states == {"fetch": 2, "dispatch": 0, "recovery": 0, "store": 0}


def test_gauges_tell_of_a_watched_store_and_of_several_endpoints(
    reader: InMemoryMetricReader, provider: MeterProvider, clock: SettableClock
) -> None:
    class DeepTransport(ScriptedTransport):
        def depth(self, queue: str) -> int | None:
            return 7 if queue == "broken" else None

    busy, idle = CountingStore(clock), FiveMethodStore()
    busy.store_many([message("a", due_time=NOON - timedelta(seconds=30)), message("b", failure_count=1)])
    busy.pause("billing", by="test")
    busy.keep_history(timedelta(days=1))
    busy.store(message("gone", due_time=NOON))
    busy.cancel("gone")
    observers = [OpenTelemetryMetrics(endpoint, meter_provider=provider) for endpoint in ("busy", "idle", "unwatched")]
    observers[0].watch(busy, DeepTransport(), "broken")
    observers[1].watch(idle)
    found = read(reader)
    gauges = [metric.name for metric in names.METRICS if metric.kind == "gauge" and metric is not names.BREAKER_STATE]
    values = {
        name: {point.attributes[names.ENDPOINT]: point.value for point in found[name].data.data_points}
        for name in gauges
        if name in found
    }
    assert values == {
        "delaystore.store.available": {"busy": 1, "idle": 1},
        "delaystore.backlog": {"busy": 2},
        "delaystore.oldest_overdue": {"busy": 30, "idle": 0},
        "delaystore.failing": {"busy": 1},
        "delaystore.parked": {"busy": 0},
        "delaystore.paused": {"busy": 1},
        "delaystore.error_queue.depth": {"busy": 7},
        "delaystore.dispatchers": {"busy": 0},
        "delaystore.history.entries": {"busy": 1},
        "delaystore.history.kept": {"busy": 86_400},
    }


def test_a_history_that_may_not_be_read_leaves_the_other_gauges_alone(
    reader: InMemoryMetricReader, provider: MeterProvider, clock: SettableClock
) -> None:
    class SecretiveStore(CountingStore):
        def history_status(self) -> HistoryStatus:
            raise StorePermissionError("permission denied for table sales_delayed_settings")

    observer = OpenTelemetryMetrics("sales", meter_provider=provider)
    observer.watch(SecretiveStore(clock))
    found = read(reader)
    assert points(found["delaystore.store.available"]) == {(): 1}
    assert not [name for name in found if name.startswith("delaystore.history.")]


def test_the_store_is_asked_once_for_all_gauges_and_then_not_for_a_while(
    reader: InMemoryMetricReader, provider: MeterProvider, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer = OpenTelemetryMetrics("sales", meter_provider=provider)
    observer.watch(store)
    for _ in range(3):
        read(reader)
    assert store.asked["status"] == 1
    monkeypatch.setattr(readings, "EVERY", 0.0)
    read(reader)
    assert store.asked["status"] > 1


def test_an_export_does_not_wait_for_a_store_that_hangs(
    reader: InMemoryMetricReader, provider: MeterProvider, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class HangingStore(CountingStore):
        def __init__(self) -> None:
            super().__init__(clock)
            self.goes_on = threading.Event()
            self.goes_on.set()

        def status(self) -> StoreStatus:
            assert self.goes_on.wait(PATIENCE)
            return super().status()

    monkeypatch.setattr(readings, "EVERY", 0.0)
    monkeypatch.setattr(readings, "LONGEST_WAIT", PATIENCE)
    monkeypatch.setattr(readings, "LONGEST_ANSWER", 2.0)
    store = HangingStore()
    store.store(message("a"))
    observer = OpenTelemetryMetrics("sales", meter_provider=provider)
    observer.watch(store)
    assert points(read(reader)["delaystore.store.available"]) == {(): 1}
    monkeypatch.setattr(readings, "LONGEST_WAIT", 0.0)
    store.goes_on.clear()
    try:
        assert points(read(reader)["delaystore.store.available"]) == {(): 1}  # the former answer
        wait_until(lambda: points(read(reader)["delaystore.store.available"]) == {})
        assert "delaystore.backlog" not in read(reader)
    finally:
        store.goes_on.set()


def test_a_store_that_fails_is_not_available(
    reader: InMemoryMetricReader, provider: MeterProvider, store: CountingStore
) -> None:
    store.error = StoreUnavailableError("the database is down")
    observer = OpenTelemetryMetrics("sales", meter_provider=provider)
    observer.watch(store)
    (point,) = read(reader)["delaystore.store.available"].data.data_points
    assert point.value == 0


def test_names_and_units_are_those_of_the_conventions() -> None:
    for metric in names.METRICS:
        if metric.name.startswith("messaging."):
            provider = MeterProvider()
            create = getattr(messaging_metrics, "create_" + metric.name.replace(".", "_"))
            instrument = create(provider.get_meter("test"))
            assert (metric.unit, metric.description) == (instrument.unit, instrument.description)
            provider.shutdown()
        else:
            assert metric.name.startswith("delaystore.")
    known = {value for name, value in vars(messaging_attributes).items() if name.startswith("MESSAGING_")}
    ours = {value for value in vars(names).values() if isinstance(value, str) and value.startswith("messaging.")}
    assert ours - {metric.name for metric in names.METRICS} <= known
    assert names.ERROR_TYPE == error_attributes.ERROR_TYPE


def test_without_a_provider_nothing_is_measured_and_nothing_breaks(store: CountingStore) -> None:
    observer = OpenTelemetryMetrics("sales")
    DelayedDelivery("sales", store, observer=observer).send("billing", b"", delay=0)
    assert Dispatcher(store, ScriptedTransport(), observer=observer).dispatch_due().delivered == 1


def test_a_server_serves_until_it_is_closed() -> None:
    import urllib.error
    import urllib.request

    with MetricsServer(port=0) as server:
        server.observer("sales", traces=False).pass_ended  # noqa: B018 - what is made is served
        with urllib.request.urlopen(server.url) as answer:
            assert b"delaystore_lateness_seconds" in answer.read()
    server.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.url)


@pytest.mark.parametrize("host", ["a..b", "x" * 300, "nowhere.invalid"])
def test_a_name_that_leads_nowhere_is_told(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics cannot be served at .*; give another address"):
        MetricsServer(host, 0)
