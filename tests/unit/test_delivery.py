import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    InvalidMessageError,
    MessageBeingStoredError,
    StoreUnavailableError,
    TransportUnavailableError,
    UnsupportedMessageError,
    UnsupportedModeError,
)
from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.stores.abc import ManagementOutcome, StoreStatus
from delaystore.testing import SettableClock
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.memory import InMemoryTransport
from tests.dispatching import (
    NOON,
    CountingStore,
    FiveMethodStore,
    ScriptedTransport,
    message,
    settings,
    wait_until,
)


class SetUpStore(CountingStore):
    """Counts how often it was set up."""

    def setup_infrastructure(self) -> None:
        self._note("setup")


@pytest.fixture
def store(clock: SettableClock) -> SetUpStore:
    return SetUpStore(clock)


@pytest.fixture
def delivery(store: SetUpStore, transport: ScriptedTransport) -> Iterator[DelayedDelivery]:
    delivery = DelayedDelivery("sales", store, transport)
    yield delivery
    delivery.close()


def test_a_delay_counts_from_now_on_the_stores_clock(delivery: DelayedDelivery, store: SetUpStore) -> None:
    message_id = delivery.send("billing", b"body", delay=timedelta(days=3), headers={"kind": "reminder"})
    assert store.get(message_id) == DelayedMessage(
        message_id=message_id,
        destination="billing",
        due_time=NOON + timedelta(days=3),
        body=b"body",
        headers={"kind": "reminder"},
    )


def test_a_delay_may_be_a_number_of_seconds(delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"", delay=1.5, properties={"priority": 3})
    found = delivery.get(message_id)
    assert found is not None
    assert found.due_time == NOON + timedelta(seconds=1.5)
    assert found.properties == {"priority": 3}


def test_a_due_time_is_kept_as_given(delivery: DelayedDelivery) -> None:
    at = datetime(2027, 6, 1, tzinfo=UTC)
    assert delivery.send("billing", b"", at=at, message_id="mine") == "mine"
    found = delivery.get("mine")
    assert found is not None
    assert found.due_time == at


def test_generated_ids_are_ordered_by_time(delivery: DelayedDelivery) -> None:
    ids = [delivery.send("billing", b"", delay=1) for _ in range(50)]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize(
    ("when", "complaint"),
    [
        ({}, "exactly one of delay= .* and at="),
        ({"delay": 1, "at": NOON}, "exactly one"),
        ({"delay": -1}, "negative"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": float("inf")}, "delay"),
        ({"delay": "soon"}, "delay must be"),
        ({"at": datetime(2027, 1, 1)}, "no time zone"),  # noqa: DTZ001 - what is refused
        ({"at": 5}, "due_time must be a datetime"),
    ],
)
def test_a_senseless_time_is_refused_and_nothing_is_stored(
    delivery: DelayedDelivery, when: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InvalidMessageError, match=complaint):
        delivery.send("billing", b"", **when)  # type: ignore[arg-type]
    assert delivery.count() == 0


def test_a_value_is_sent_as_json(delivery: DelayedDelivery, store: SetUpStore) -> None:
    message_id = delivery.send("billing", json={"order": 17, "name": "für"}, delay=1, properties={"priority": 3})
    found = store.get(message_id)
    assert found is not None
    assert found.body == '{"order":17,"name":"für"}'.encode()
    assert found.properties == {"content_type": "application/json", "priority": 3}
    named = {"content_type": "application/cloudevents+json"}
    found = store.get(delivery.send("billing", json=[], delay=1, properties=named))
    assert found is not None
    assert (found.body, found.properties) == (b"[]", named)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({}, "give exactly one of body= .* and json="),
        ({"body": b"", "json": 1}, "give exactly one of body= .* and json="),
        ({"json": None}, "give exactly one of body= .* and json="),
        ({"json": object()}, "the value of json= cannot be written as JSON: Object of type object"),
        ({"json": float("nan")}, "the value of json= cannot be written as JSON"),
        ({"json": "\ud800"}, "the value of json= cannot be written as JSON"),
    ],
)
def test_a_body_is_given_once(delivery: DelayedDelivery, content: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidMessageError, match=complaint):
        delivery.send("billing", delay=1, **content)
    assert delivery.count() == 0


def test_a_body_that_is_too_long_is_refused(store: SetUpStore) -> None:
    delivery = DelayedDelivery("sales", store, settings=settings(max_body_bytes=3))
    delivery.send("billing", b"123", delay=1)
    with pytest.raises(InvalidMessageError, match=r"4 bytes.*max_body_bytes allows 3"):
        delivery.send("billing", b"1234", delay=1)
    assert delivery.count() == 1


def test_what_the_transport_cannot_carry_is_refused(delivery: DelayedDelivery, transport: ScriptedTransport) -> None:
    transport.check_error = lambda one: UnsupportedMessageError("too large")
    with pytest.raises(UnsupportedMessageError):
        delivery.send("billing", b"", delay=1)
    assert delivery.count() == 0


def test_a_message_id_that_waits_is_refused_and_no_outage(delivery: DelayedDelivery) -> None:
    delivery.send("billing", b"first", delay=1, message_id="a")
    with pytest.raises(DuplicateMessageError):
        delivery.send("billing", b"second", delay=1, message_id="a")
    assert delivery.health().breakers["store"] == "disarmed"


def test_the_time_for_a_stores_answer_may_be_seconds(delivery: DelayedDelivery, store: SetUpStore) -> None:
    for one in (delivery, DelayedDelivery("sales", store)):
        assert one.health(timeout=5).store is None
        assert one.health(timeout=timedelta(seconds=5)).store is None


def test_many_are_sent_from_a_generator(delivery: DelayedDelivery) -> None:
    assert delivery.send_many(message(str(number)) for number in range(100)) == 100
    assert delivery.count() == 100


def test_of_many_with_a_bad_one_among_them_none_is_stored(
    delivery: DelayedDelivery, transport: ScriptedTransport
) -> None:
    transport.check_error = lambda one: UnsupportedMessageError("bad") if one.message_id == "bad" else None
    with pytest.raises(UnsupportedMessageError):
        delivery.send_many([message("good"), message("bad")])
    with pytest.raises(InvalidMessageError, match="not a dict"):
        delivery.send_many([message("good"), {"destination": "billing"}])  # type: ignore[list-item]
    assert delivery.count() == 0


def test_sending_needs_no_start_and_no_transport(store: SetUpStore) -> None:
    delivery = DelayedDelivery("sales", store)
    message_id = delivery.send("billing", b"", delay=1)
    assert delivery.get(message_id) is not None
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("delaystore-")]


def test_without_a_transport_there_is_nothing_to_start(store: SetUpStore) -> None:
    with DelayedDelivery("sales", store) as delivery:
        with pytest.raises(ConfigurationError, match="has no transport"):
            delivery.start()
        assert delivery.stop()
        assert not delivery.health().running


def test_the_store_is_set_up_once_at_the_first_use(delivery: DelayedDelivery, store: SetUpStore) -> None:
    assert store.asked["setup"] == 0
    threads = [threading.Thread(target=delivery.count) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    delivery.send("billing", b"", delay=1)
    assert store.asked["setup"] == 1


def test_a_setup_that_failed_is_tried_again(delivery: DelayedDelivery, store: SetUpStore) -> None:
    store.error = StoreUnavailableError("the database is down")
    with pytest.raises(StoreUnavailableError):
        delivery.send("billing", b"", delay=1)
    store.error = None
    delivery.send("billing", b"", delay=1)
    assert store.asked["setup"] == 2


def test_without_automatic_setup_the_store_is_set_up_by_hand_alone(
    store: SetUpStore, transport: ScriptedTransport
) -> None:
    delivery = DelayedDelivery("sales", store, transport, settings(automatic_setup=False))
    delivery.send("billing", b"", delay=1)
    assert store.asked["setup"] == 0
    delivery.setup_infrastructure()
    assert store.asked["setup"] == 1
    assert transport.declarations == ["error"]


def test_setting_up_by_hand_tells_of_a_broker_that_is_down(
    delivery: DelayedDelivery, transport: ScriptedTransport
) -> None:
    transport.declare_error = TransportUnavailableError("no connection")
    with pytest.raises(TransportUnavailableError):
        delivery.setup_infrastructure()


def test_a_store_that_fails_arms_the_store_breaker_and_one_that_works_disarms_it(
    delivery: DelayedDelivery, store: SetUpStore
) -> None:
    delivery.send("billing", b"", delay=1)
    store.error = StoreUnavailableError("the database is down")
    with pytest.raises(StoreUnavailableError):
        delivery.send("billing", b"", delay=1)
    assert delivery.health().breakers["store"] == "armed"
    store.error = None
    delivery.send("billing", b"", delay=1)
    assert delivery.health().breakers["store"] == "disarmed"


def test_a_store_that_has_the_message_already_works(delivery: DelayedDelivery, store: SetUpStore) -> None:
    message_id = delivery.send("billing", b"", delay=1)
    store.error = StoreUnavailableError("the database is down")
    with pytest.raises(StoreUnavailableError):
        delivery.send("billing", b"", delay=1)
    store.error = None
    with pytest.raises(DuplicateMessageError):
        delivery.send("billing", b"", delay=1, message_id=message_id)
    assert delivery.health().breakers["store"] == "disarmed"


def test_a_store_that_says_to_try_again_works(delivery: DelayedDelivery, store: SetUpStore) -> None:
    store.error = MessageBeingStoredError("m-1")
    with pytest.raises(MessageBeingStoredError, match="'m-1' is just being stored"):
        delivery.send("billing", b"", delay=1, message_id="m-1")
    assert delivery.health().breakers["store"] == "disarmed"


def test_a_store_that_fails_for_long_is_a_critical_error(store: SetUpStore) -> None:
    calls: list[str] = []
    delivery = DelayedDelivery(
        "sales",
        store,
        settings=settings(
            time_to_trigger_store_circuit_breaker=0.001, on_critical_error=lambda text, error: calls.append(text)
        ),
    )
    store.error = StoreUnavailableError("the database is down")
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            delivery.send("billing", b"", delay=1)
        threading.Event().wait(0.01)
    assert len(calls) == 1


def test_with_starts_the_dispatcher_and_ends_it(transport: ScriptedTransport) -> None:
    store = CountingStore()
    with DelayedDelivery("sales", store, transport, settings(poll_interval=3600)) as delivery:
        assert delivery.health().running
        wait_until(lambda: store.asked["next"])
        delivery.send("billing", b"now", delay=0)
        delivery.send("billing", b"soon", delay=0.05)
        delivery.send_many([message("in the past")])
        wait_until(lambda: delivery.health().delivered == 2)
        delivery.cancel("in the past")
        assert transport.declarations == ["error"]
    assert not delivery.health().running
    assert transport.bodies("billing") == [b"now", b"soon"]


def test_a_broker_that_is_down_does_not_prevent_the_start(
    transport: ScriptedTransport, caplog: pytest.LogCaptureFixture
) -> None:
    transport.declare_error = TransportUnavailableError("no connection")
    with DelayedDelivery("sales", CountingStore(), transport) as delivery:
        delivery.send("billing", b"", delay=0)
        wait_until(lambda: delivery.health().delivered)
    assert [record.getMessage() for record in caplog.records] == ["cannot declare the error queue: no connection"]


def test_a_rescheduled_message_is_dispatched_at_its_new_time(transport: ScriptedTransport) -> None:
    store = CountingStore()
    with DelayedDelivery("sales", store, transport, settings(poll_interval=3600)) as delivery:
        message_id = delivery.send("billing", b"", delay=3600)
        wait_until(lambda: store.asked["next"])
        assert delivery.reschedule(message_id, delay=0.01) is ManagementOutcome.DONE
        wait_until(lambda: delivery.health().delivered == 1)
        assert delivery.reschedule(message_id, delay=1) is ManagementOutcome.NOT_FOUND


def test_what_waits_can_be_listed_counted_and_cancelled(delivery: DelayedDelivery) -> None:
    for number in range(3):
        delivery.send("billing", b"", at=NOON + timedelta(hours=number), message_id=str(number))
    delivery.send("shipping", b"", delay=60, message_id="other")
    page = delivery.list(destination="billing", limit=2)
    assert [one.message_id for one in page.messages] == ["0", "1"]
    rest = delivery.list(destination="billing", after=page.next_key)
    assert [one.message_id for one in rest.messages] == ["2"]
    assert delivery.count() == 4
    assert delivery.count(destination="shipping") == 1
    assert delivery.count_by_due_time(timedelta(hours=2)) == {NOON: 3, NOON + timedelta(hours=2): 1}
    assert delivery.cancel("1") is ManagementOutcome.DONE
    assert delivery.cancel("1") is ManagementOutcome.NOT_FOUND
    assert delivery.get("1") is None


@pytest.mark.parametrize("when", [{}, {"delay": 1, "at": NOON}, {"delay": -1}])
def test_a_senseless_new_time_is_refused(delivery: DelayedDelivery, when: dict[str, object]) -> None:
    with pytest.raises(InvalidMessageError):
        delivery.reschedule("a", **when)  # type: ignore[arg-type]


def test_a_store_of_five_methods_can_send_but_not_list(transport: ScriptedTransport) -> None:
    with DelayedDelivery("sales", FiveMethodStore(), transport) as delivery:
        delivery.send("billing", b"a", delay=0)
        wait_until(lambda: delivery.health().delivered == 1)
        for manage in (delivery.list, delivery.count, lambda: delivery.get("a"), lambda: delivery.cancel("a")):
            with pytest.raises(ConfigurationError, match="FiveMethodStore cannot list or change"):
                manage()
        with pytest.raises(ConfigurationError, match="another program's transaction; use a SQL store"):
            delivery.enlist(object())


def test_exactly_once_is_refused_for_a_pair_that_shares_no_transaction() -> None:
    with pytest.raises(UnsupportedModeError, match="another transaction_mode"):
        DelayedDelivery(
            "sales",
            FiveMethodStore(),
            InMemoryTransport(),
            settings(transaction_mode=TransactionMode.TRANSACTION_SCOPE),
        )


def test_close_may_be_called_twice(delivery: DelayedDelivery) -> None:
    delivery.start()
    delivery.close()
    delivery.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # what the test is about
def test_a_forked_child_sends_although_the_parents_locks_were_held(delivery: DelayedDelivery) -> None:
    with delivery._setup_lock:
        child = os.fork()
        if child == 0:  # pragma: no cover - no coverage is measured in the child
            signal.alarm(60)  # a child that waits for the parent's lock must not outlive the test
            os._exit(0 if delivery.send("billing", b"", delay=3600) and delivery.count() == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert delivery.count() == 0


def test_closing_does_not_wait_without_end_for_what_is_in_flight(
    store: SetUpStore, caplog: pytest.LogCaptureFixture
) -> None:
    sending, answer = threading.Event(), threading.Event()

    class SlowTransport(ScriptedTransport):
        def send(self, *arguments: Any) -> Any:
            sending.set()
            answer.wait(30)
            return super().send(*arguments)

    delivery = DelayedDelivery("sales", store, SlowTransport())
    store.store(message("a"))
    delivery.start()
    assert sending.wait(30)
    delivery.close(0.05)
    assert "has not finished in time" in caplog.text
    answer.set()
    assert delivery.stop(30)


def test_what_a_dispatcher_opens_while_it_finishes_is_closed_at_its_end(store: SetUpStore) -> None:
    sending, answer, closed = threading.Event(), threading.Event(), threading.Event()

    class SlowTransport(ScriptedTransport):
        """It connects anew when it is asked whether it can send, as RabbitMQ's does."""

        def send(self, *arguments: Any) -> Any:
            sending.set()
            answer.wait(30)
            return [Outcome(OutcomeKind.UNCONFIRMED, "the transport was closed")]

        def unavailable(self) -> str | None:
            closed.clear()
            return None

        def close(self) -> None:
            closed.set()

    delivery = DelayedDelivery("sales", store, SlowTransport())
    store.store(message("a"))
    delivery.start()
    assert sending.wait(30)
    delivery.close(0.05)
    answer.set()
    assert delivery.stop(30)
    assert closed.wait(5)


def test_health_asks_the_store_of_a_process_that_only_sends(
    clock: SettableClock, store: SetUpStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = DelayedDelivery("sales", store)
    delivery.send("billing", b"", delay=1)
    clock.advance(61)
    health = delivery.health()
    assert (health.oldest_overdue, health.store) == (timedelta(minutes=1), None)
    assert (health.healthy, health.running, health.dispatches, health.backlog) == (True, False, False, 1)
    clock.advance(3600)
    assert delivery.health().healthy, "what is overdue is not the fault of who sends"

    def fail() -> StoreStatus:
        raise StoreUnavailableError("gone")

    monkeypatch.setattr(store, "status", fail)
    assert delivery.health().store == "gone"
    assert delivery.health().problems == ["the store: gone"]
