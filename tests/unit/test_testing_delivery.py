"""TestDelivery: what a test of somebody's program does with it."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from delaystore import DelayedDeliverySettings, DelayedMessage
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.testing import SettableClock, TestDelivery
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
REFUSED = Outcome(OutcomeKind.REFUSED, "the queue is full")


@pytest.fixture
def delivery() -> TestDelivery:
    return TestDelivery("sales")


def bodies(messages: object) -> list[bytes]:
    assert isinstance(messages, list)
    return [message.body for message in messages]


def test_three_days_later_the_reminder_goes_out(delivery: TestDelivery) -> None:
    delivery.send("billing", b"pay me", delay=timedelta(days=3))
    assert delivery.dispatch_due() == []
    delivery.clock.advance(days=2, hours=23, minutes=59, seconds=59)
    assert delivery.dispatch_due() == []
    delivery.clock.advance(seconds=1)
    (reminder,) = delivery.dispatch_due()
    assert (reminder.destination, reminder.body) == ("billing", b"pay me")
    assert delivery.waiting() == []
    assert delivery.delivered("/queues/billing") == [reminder]
    assert delivery.dispatch_due() == []


def test_what_is_due_arrives_in_order_and_in_the_test_s_own_thread(delivery: TestDelivery) -> None:
    for hours in (3, 1, 2, 5):
        delivery.send("billing", f"{hours}".encode(), delay=timedelta(hours=hours))
    threads: set[threading.Thread] = set()
    delivery.on("/queues/billing", lambda _: threads.add(threading.current_thread()))
    delivery.clock.advance(hours=4)
    assert bodies(delivery.dispatch_due()) == [b"1", b"2", b"3"]
    assert bodies(delivery.waiting()) == [b"5"]
    assert delivery.waiting("elsewhere") == []
    assert threads == {threading.current_thread()}


def test_start_and_with_start_no_dispatcher(delivery: TestDelivery) -> None:
    with delivery:
        delivery.start()
        delivery.send("billing", b"pay me", delay=0)
        assert not delivery.health().running
        assert delivery.stop()
    assert len(delivery.dispatch_due()) == 1


def test_a_handler_s_own_messages_arrive_in_the_same_call_if_they_are_due(delivery: TestDelivery) -> None:
    def remind(message: DelayedMessage) -> None:
        delivery.send("mail", b"please pay " + message.body, delay=0)
        delivery.send("dunning", message.body, delay=timedelta(days=7))

    delivery.on("reminders", remind)
    delivery.send("reminders", b"order 17", delay=60)
    delivery.clock.advance(60)
    assert [message.destination for message in delivery.dispatch_due()] == ["reminders", "mail"]
    delivery.assert_sent("dunning", "order 17", delay=timedelta(days=7))


def test_handlers_that_never_end_are_ended(delivery: TestDelivery) -> None:
    delivery.on("ping", lambda message: delivery.send("ping", message.body, delay=0))
    delivery.send("ping", b"", delay=0)
    with pytest.raises(AssertionError, match="due at once 100 times in a row, last to 'ping'"):
        delivery.dispatch_due()


def test_a_handler_s_error_reaches_the_test_and_the_others_have_their_turn(delivery: TestDelivery) -> None:
    handled: list[bytes] = []

    def handle(message: DelayedMessage) -> None:
        if message.body == b"1":
            raise RuntimeError("no such order")
        handled.append(message.body)

    delivery.on("billing", handle)
    for number in range(3):
        delivery.send("billing", b"%d" % number, delay=0)
    with pytest.raises(RuntimeError, match="no such order"):
        delivery.dispatch_due()
    assert handled == [b"0"]
    assert delivery.waiting() == []
    assert delivery.dispatch_due() == []
    assert handled == [b"0", b"2"]


def test_time_that_passes_stops_at_each_message(delivery: TestDelivery) -> None:
    arrivals: list[timedelta] = []

    def remind(message: DelayedMessage) -> None:
        arrivals.append(delivery.clock.now() - NOON)
        delivery.send("reminders", message.body, delay=timedelta(days=2))

    delivery.on("reminders", remind)
    delivery.send("reminders", b"order 17", delay=timedelta(days=1))
    assert len(delivery.dispatch_for(days=5, hours=1)) == 3
    assert arrivals == [timedelta(days=1), timedelta(days=3), timedelta(days=5)]
    assert delivery.clock.now() == NOON + timedelta(days=5, hours=1)
    assert len(delivery.dispatch_for(timedelta(days=2))) == 1


def test_time_does_not_go_back(delivery: TestDelivery) -> None:
    """Also where a handler lets more of it pass."""
    delivery.on("billing", lambda _: delivery.dispatch_for(days=5))
    delivery.send("billing", b"", delay=60)
    delivery.send("later", b"", delay=timedelta(days=3))
    delivery.dispatch_for(days=1)
    assert delivery.clock.now() == NOON + timedelta(days=5, minutes=1)
    assert len(delivery.delivered("later")) == 1
    with pytest.raises(InvalidMessageError, match=r"to go back, use clock\.advance"):
        delivery.dispatch_for(days=-1)


def test_a_refused_message_is_retried_and_ends_in_the_error_queue() -> None:
    settings = DelayedDeliverySettings(number_of_retries=2, retry_span=timedelta(minutes=1), error_queue="failed")
    delivery = TestDelivery("sales", settings=settings)
    delivery.transport.outcomes["billing"] = REFUSED
    delivery.send("billing", b"pay me", delay=0)
    assert delivery.dispatch_due() == []
    (waiting,) = delivery.waiting()
    assert waiting.failure_count == 1
    delivery.dispatch_for(minutes=5)
    assert delivery.waiting() == []
    (copy,) = delivery.delivered("failed")
    assert copy.headers["NServiceBus.ExceptionInfo.Message"] == "the queue is full"

    delivery.transport.outcomes["billing"] = DELIVERED
    delivery.send("billing", b"again", delay=0)
    assert bodies(delivery.dispatch_due()) == [b"again"]


def test_a_pretended_outage_delivers_nothing_and_takes_no_time(delivery: TestDelivery) -> None:
    delivery.send("billing", b"pay me", delay=0)
    delivery.transport.unavailable_reason = "the broker is down"
    assert delivery.dispatch_for(days=1) == []
    delivery.transport.unavailable_reason = None
    assert len(delivery.dispatch_due()) == 1


def test_what_was_sent_is_found_by_anything_it_has(delivery: TestDelivery) -> None:
    delivery.send("billing", b'{"order": 17}', delay=3600, headers={"tenant": "emea", "n": 1})
    delivery.send("mail", "straße".encode(), at=NOON)
    sent = delivery.assert_sent("billing", json={"order": 17}, delay=timedelta(hours=1), headers={"tenant": "emea"})
    assert delivery.assert_sent(at=NOON + timedelta(hours=1)) == sent
    delivery.assert_sent("/queues/mail", "straße", delay=0)
    delivery.dispatch_due()
    delivery.assert_sent("mail", at=NOON)
    delivery.assert_not_sent("mail", json=None)
    delivery.assert_not_sent("shipping")
    delivery.cancel(sent.message_id)
    delivery.assert_not_sent("billing")


def test_an_expected_time_without_a_zone_is_refused(delivery: TestDelivery) -> None:
    delivery.send("billing", b"", delay=0)
    with pytest.raises(InvalidMessageError, match="has no time zone"):
        delivery.assert_sent(at=NOON.replace(tzinfo=None))


def test_what_was_sent_is_found_by_its_key(delivery: TestDelivery) -> None:
    delivery.send("billing", b"first", delay=60, key="order-17")
    delivery.send("billing", b"last", delay=60, key="order-17", on_key="replace")
    delivery.assert_sent("billing", "last", key="order-17")
    with pytest.raises(AssertionError, match=r"key 'order-18'\nwaiting:\n.*key 'order-17' \[different: key\]"):
        delivery.assert_sent(key="order-18")


def test_what_was_not_sent_is_told_with_all_that_was(delivery: TestDelivery) -> None:
    with pytest.raises(AssertionError) as failure:
        delivery.assert_sent("billing")
    assert str(failure.value).splitlines() == [
        "no such message was sent: to 'billing'",
        "waiting: nothing",
        "delivered: nothing",
    ]
    delivery.send("mail", b"hello", delay=0)
    delivery.dispatch_due()
    delivery.send("billing", b"pay me", delay=timedelta(days=2), headers={"n": 1})
    with pytest.raises(AssertionError) as failure:
        delivery.assert_sent("billing", b"pay us", delay=timedelta(days=3), headers={"n": 1})
    assert str(failure.value).splitlines() == [
        "no such message was sent: to 'billing', body b'pay us', due 2027-01-04 12:00:00+00:00 (in 3 days, 0:00:00), "
        "headers {'n': 1}",
        "waiting:",
        "  to 'billing', body b'pay me', due 2027-01-03 12:00:00+00:00 (in 2 days, 0:00:00), headers {'n': 1} "
        "[different: body, due time]",
        "delivered:",
        "  to 'mail', body b'hello', due 2027-01-01 12:00:00+00:00 (now) "
        "[different: destination, body, due time, headers]",
    ]


def test_a_report_of_many_is_short(delivery: TestDelivery) -> None:
    for number in range(25):
        delivery.send("billing", b"%d" % number * 100, delay=number)
    with pytest.raises(AssertionError) as failure:
        delivery.assert_not_sent()
    lines = str(failure.value).splitlines()
    assert lines[0] == "25 sent, where none was expected: any"
    assert lines[-2:] == ["  and 5 more", "delivered: nothing"]
    assert max(map(len, lines)) < 200


def test_all_that_waits_is_there_however_much(delivery: TestDelivery) -> None:
    delivery.send_many(
        DelayedMessage(message_id=f"{number}", destination="billing", due_time=NOON, body=b"") for number in range(2500)
    )
    assert len(delivery.waiting()) == 2500
    assert len(delivery.dispatch_due()) == 2500


def test_a_store_by_another_clock_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="goes by another clock; make both with the same"):
        TestDelivery("sales", InMemoryDelayedMessageStore(SettableClock(NOON + timedelta(1))))


def test_a_handler_that_would_have_to_be_awaited_is_refused(delivery: TestDelivery) -> None:
    async def handle(message: DelayedMessage) -> None: ...

    with pytest.raises(ConfigurationError, match="asynchronous; give a function"):
        delivery.on("billing", handle)
