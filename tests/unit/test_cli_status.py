"""What `status` and `health` say of an endpoint, in words."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from delaystore.cli._health import StoreReport
from delaystore.cli._status import recent_row, status_lines
from delaystore.delivery import DelayedDelivery
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, FailedAttempt
from delaystore.operations.overview import HealthCriteria, Overview, Recent
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.stores.documents import LatenessHistogram
from delaystore.stores.records import Activity, DispatcherRecord, FailedDelivery
from delaystore.text import duration_text, parse_duration, rate_text, time_text
from delaystore.transports import InMemoryTransport

FIVE_MINUTES = HealthCriteria(max_overdue=timedelta(minutes=5))
A_DISPATCHER = HealthCriteria(max_overdue=timedelta(minutes=5), dispatcher=True)
NOW = datetime(2026, 11, 24, 6, 30, 15, tzinfo=UTC)


@pytest.fixture
def store() -> InMemoryDelayedMessageStore:
    return InMemoryDelayedMessageStore()


@pytest.fixture
def delivery(store: InMemoryDelayedMessageStore) -> Iterator[DelayedDelivery]:
    delivery = DelayedDelivery("sales", store)
    yield delivery
    delivery.close()


def report(delivery: DelayedDelivery) -> StoreReport:
    return StoreReport(None, delivery.operations.overview())


def screen(delivery: DelayedDelivery) -> str:
    return "\n".join(status_lines(report(delivery), FIVE_MINUTES, ()))


def dispatcher(store: InMemoryDelayedMessageStore, **given: object) -> DispatcherRecord:
    now = store.now()
    known = {"dispatcher_id": "1", "name": "worker-1", "host": "app-7", "pid": 4711, "version": "0.2.0"}
    return DispatcherRecord(**{**known, "since": now - timedelta(hours=30), "heartbeat": now, **given})  # type: ignore[arg-type]


def test_nothing_waits(delivery: DelayedDelivery) -> None:
    assert str(report(delivery)) == "0 waiting, nothing is overdue"
    shown = screen(delivery)
    assert "health       healthy\n" in shown
    assert "dispatchers  none is running\n" in shown


def test_what_is_overdue_and_that_nobody_dispatches_is_told(delivery: DelayedDelivery) -> None:
    delivery.send("billing", b"", at=datetime.now(UTC) - timedelta(minutes=3))
    told = report(delivery)
    assert str(told) == "1 waiting, the oldest message is overdue for 3m; no dispatcher is running"
    assert not told.faults(FIVE_MINUTES)
    assert told.faults(A_DISPATCHER) == ["no dispatcher is running"]
    assert "dispatchers  none is running, and messages are overdue\n" in screen(delivery)
    delivery.send("billing", b"", at=datetime.now(UTC) - timedelta(minutes=90))
    assert report(delivery).faults(FIVE_MINUTES) == ["the oldest message is overdue for 1h30m"]


def test_who_only_sends_is_healthy(delivery: DelayedDelivery) -> None:
    delivery.send("billing", b"", delay=3600)
    assert str(report(delivery)) == "1 waiting, nothing is overdue"
    assert not report(delivery).faults(FIVE_MINUTES)


def test_what_is_unknown_is_not_said_to_be_well() -> None:
    unknown = StoreReport(None, Overview(endpoint="sales", error_queue="error"))
    assert unknown.faults(A_DISPATCHER) == ["it is unknown whether a dispatcher is running"]
    assert not unknown.no_dispatcher
    document = unknown.document(FIVE_MINUTES)
    assert {name for name, value in document.items() if value is None} == {
        "waiting", "exact", "oldest_overdue", "failing", "parked", "paused", "error_queue_depth", "dispatchers",
    }  # fmt: skip


def test_of_many_destinations_the_first_are_named(
    delivery: DelayedDelivery, store: InMemoryDelayedMessageStore
) -> None:
    for number in range(12):
        store.pause(f"queue-{number:02}", by="me")
        store.limit_rate(f"mail-{number:02}", 20, by="me")
    assert "queue-09 and 2 more" in str(report(delivery))
    shown = screen(delivery)
    assert "queue-09 and 2 more\n" in shown
    assert "mail-09 to 20/s and 2 more\n" in shown
    assert "queue-10" not in shown


def test_paused_and_failing_messages_are_told_and_alarm_nobody(
    delivery: DelayedDelivery, store: InMemoryDelayedMessageStore
) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    delivery.send("billing", b"", at=long_ago)
    delivery.send("other", b"", delay=0)
    store.pause("billing", by="me", until=NOW.replace(year=2099))
    store.pause("shipping", by="me")
    store.limit_rate("mail", 20, by="me")
    store.limit_rate("billing", 200, by="me")
    assert store.park(store.now()) == 1
    (failed,) = store.fetch_due(store.now(), 10)
    attempt = FailedAttempt(store.now(), "Refused", "full")
    store.count_failures([FailedDelivery(message=failed, next_attempt=store.now(), attempt=attempt)])
    store.heartbeat(dispatcher(store, error_queue_depth=3))
    told = report(delivery)
    assert not told.faults(FIVE_MINUTES)
    assert "1 failing; paused: billing, shipping; the error queue holds 3 messages" in str(told)
    shown = screen(delivery)
    assert "failing      1; delaystore list --failing shows them\n" in shown
    assert "parked       1\n" in shown
    assert "paused       billing until 2099-11-24 06:30:15Z, shipping\n" in shown
    assert "limited      billing to 200/s, mail to 20/s\n" in shown
    assert "error queue  error: 3\n" in shown
    document = told.document(FIVE_MINUTES)
    assert (document["paused"], document["failing"], document["parked"]) == (["billing", "shipping"], 1, 1)
    assert (document["error_queue"], document["error_queue_depth"]) == ("error", 3)


def test_how_old_the_error_queues_count_is_is_told(
    delivery: DelayedDelivery, store: InMemoryDelayedMessageStore
) -> None:
    seen = store.now() - timedelta(seconds=12)
    store.heartbeat(dispatcher(store, error_queue_depth=3, error_queue_seen=seen))
    assert "error queue  error: 3, as of 12s ago\n" in screen(delivery)
    assert report(delivery).overview.as_dict()["error_queue_seen"] == seen.isoformat()


def test_what_the_transport_says_of_the_error_queue_is_of_now(store: InMemoryDelayedMessageStore) -> None:
    transport = InMemoryTransport(auto_declare=True)
    transport.send([DelayedMessage(destination="error", body=b"", due_time=NOW, message_id="1")], None, 1)
    with closing(DelayedDelivery("sales", store, transport)) as delivery:
        store.heartbeat(dispatcher(store, error_queue_depth=3, error_queue_seen=store.now() - timedelta(seconds=12)))
        assert "error queue  error: 1\n" in screen(delivery)


def test_dispatchers_and_operations_are_shown(delivery: DelayedDelivery, store: InMemoryDelayedMessageStore) -> None:
    store.heartbeat(dispatcher(store, rate=123.4, breakers={"store": "disarmed", "dispatch": "armed"}))
    store.heartbeat(dispatcher(store, dispatcher_id="2", name="a\x1b[2Jb", problem="the broker has an alarm"))
    operation = delivery.operations.begin_cancel(MessageFilter(destination="x"))
    shown = screen(delivery)
    assert "4711 on app-7" in shown
    assert "1d6h" in shown
    assert "123/s" in shown
    assert "dispatch armed" in shown
    assert "the broker has an alarm" in shown
    assert "\x1b[2J" not in shown
    assert f"operation    {operation.operation_id}: cancel (destination x): 0 changed so far" in shown


def test_rates_and_lateness_are_of_the_last_minutes() -> None:
    lateness = LatenessHistogram()
    lateness.add([0.5] * 99 + [30])
    minutes = [Activity(minute=NOW.replace(second=0) - timedelta(minutes=ago), delivered=150) for ago in (1, 4, 59)]
    late = Activity(minute=NOW.replace(second=0), delivered=75, failed=2, lateness=lateness)
    last, five, hour = (Recent.of([*minutes, late], NOW, length) for length in (1, 5, 60))
    assert (last.done.delivered, five.done.delivered, hour.done.delivered) == (225, 375, 525)
    assert last.rate == 225 / 75
    assert recent_row(last)[:6] == ("1 min", "225", "2", "0", "0", "3/s")
    assert last.as_dict()["lateness"]["p50"] == pytest.approx(0.5, rel=0.5)
    assert recent_row(Recent.of([], NOW, 1)) == ("1 min", "0", "0", "0", "0", "0/s", "-", "-", "-")


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0, "0/s"),
        (1234.5, "1,234/s"),
        (9.94, "9.9/s"),
        (0.1, "0.1/s"),
        (0.05, "3/min"),
        (1 / 3600, "1/h"),
        (1e-9, "0/s"),
    ],
)
def test_a_slow_rate_is_told_by_the_minute_or_the_hour(rate: float, text: str) -> None:
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [
        ("0", "0s"),
        ("350ms", "350ms"),
        ("4.2s", "4.2s"),
        ("10", "10s"),
        ("130", "2m10s"),
        ("3d4h5m", "3d4h"),
        ("1h", "1h"),
    ],
)
def test_a_duration_is_shown_as_it_is_typed_and_without_microseconds(span: str, text: str) -> None:
    assert duration_text(parse_duration(span, "--x")) == text
    assert duration_text(-parse_duration(span, "--x")) == "0s"


@pytest.mark.parametrize(
    ("span", "text"),
    [
        ("-1s", "0 s"),
        ("512ms", "512 ms"),
        ("1.5s", "1.5 s"),
        ("8s", "8 s"),
        ("131s", "2 min 11 s"),
        ("65536s", "18 h 12 min"),
        ("1d59s", "1 d"),
        ("134217728s", "1,553 d 10 h"),
    ],
)
def test_a_duration_in_a_sentence_has_spaces(span: str, text: str) -> None:
    length = -parse_duration(span[1:], "--x") if span[0] == "-" else parse_duration(span, "--x")
    assert duration_text(length, spaced=True) == text


def test_a_duration_is_rounded_to_what_people_say() -> None:
    assert duration_text(timedelta(seconds=0.9996)) == "1s"
    assert duration_text(timedelta(seconds=9.97)) == "10s"
    assert duration_text(timedelta(days=1, seconds=59)) == "1d"
    assert time_text(NOW + timedelta(microseconds=999_999)) == "2026-11-24 06:30:15Z"


def test_what_was_not_answered_in_time_is_not_told_as_if_it_were() -> None:
    unknown = StoreReport(None, Overview(endpoint="sales", error_queue="error"))
    assert str(unknown) == "not counted in time how many are waiting, not known in time whether one is overdue"
