"""What tests of programs take: TestDelivery, its awaited twin, stand-ins for transactions, clocks and transports."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore import AsyncDelayedDelivery, DelayedDelivery, DelayedDeliverySettings, DelayedMessage, ManagementOutcome
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.testing import (
    AsyncFakeTransaction,
    AsyncTestDelivery,
    FakeTransaction,
    RecordingTransport,
    SettableClock,
    TestDelivery,
)
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
    with pytest.raises(ConfigurationError, match="uses another clock; make both with the same one"):
        TestDelivery("sales", InMemoryDelayedMessageStore(SettableClock(NOON + timedelta(1))))


def test_a_handler_that_would_have_to_be_awaited_is_refused(delivery: TestDelivery) -> None:
    async def handle(message: DelayedMessage) -> None: ...

    with pytest.raises(ConfigurationError, match="asynchronous; give a function"):
        delivery.on("billing", handle)


def test_three_days_later_with_a_handler_that_is_awaited() -> None:
    async def program() -> None:
        async with AsyncTestDelivery("sales") as delivery:

            async def remind(message: DelayedMessage) -> None:
                await asyncio.sleep(0)
                await delivery.send("mail", message.body, delay=0)

            delivery.on("reminders", remind)
            await delivery.send("reminders", b"17", delay=timedelta(days=3))
            delivery.assert_sent("reminders", "17", delay=timedelta(days=3))
            assert await delivery.dispatch_due() == []
            delivery.clock.advance(days=3)
            assert [message.destination for message in await delivery.dispatch_due()] == ["reminders", "mail"]
            assert delivery.waiting() == []
            assert len(delivery.delivered("mail")) == 1
            delivery.on("reminders", lambda _: None)
            await delivery.send("reminders", b"18", delay=60)
            assert len(await delivery.dispatch_for(minutes=2)) == 1
            with pytest.raises(AssertionError, match="no such message was sent: to 'shipping'"):
                delivery.assert_sent("shipping")
            with pytest.raises(AssertionError, match="1 sent, where none was expected: to 'mail'"):
                delivery.assert_not_sent("mail")
            assert not (await delivery.health()).running

    asyncio.run(program())


def test_what_is_enlisted_is_sent_with_the_commit() -> None:
    async def place_order(session: Any, delivery: AsyncDelayedDelivery, number: bytes) -> None:
        await delivery.enlist(session).send("reminders", number, delay=60)

    async def program() -> None:
        delivery = AsyncTestDelivery("sales")
        session = AsyncFakeTransaction()
        called: list[str] = []
        await place_order(session, delivery, b"17")
        session.on_rollback(lambda: called.append("rolled back"))
        await session.rollback()
        await place_order(session, delivery, b"18")
        session.on_commit(lambda: called.append("committed"))
        delivery.assert_not_sent()
        await session.commit()
        await session.close()
        delivery.assert_sent("reminders", b"18", delay=60)
        with pytest.raises(RuntimeError, match="declined"):
            async with AsyncFakeTransaction() as session:
                await place_order(session, delivery, b"19")
                raise RuntimeError("the card was declined")
        async with AsyncFakeTransaction() as session:
            await place_order(session, delivery, b"20")
        assert [message.body for message in delivery.waiting()] == [b"18", b"20"]
        assert called == ["rolled back", "committed"]

    asyncio.run(program())


def place_order(session: Any, delivery: DelayedDelivery, number: bytes) -> str:
    return delivery.enlist(session).send("reminders", number, delay=timedelta(days=3))


def test_what_is_committed_was_sent_and_what_is_rolled_back_was_not(delivery: TestDelivery) -> None:
    session = FakeTransaction()
    place_order(session, delivery, b"17")
    delivery.assert_not_sent()
    session.rollback()
    delivery.assert_not_sent()
    place_order(session, delivery, b"18")
    session.commit()
    delivery.assert_sent("reminders", b"18", delay=timedelta(days=3))
    place_order(session, delivery, b"19")
    session.close()
    assert len(delivery.waiting()) == 1


def test_a_block_commits_or_rolls_back(delivery: TestDelivery) -> None:
    with FakeTransaction() as session:
        sent = place_order(session, delivery, b"17")
    with pytest.raises(RuntimeError, match="declined"), FakeTransaction() as session:
        assert delivery.enlist(session).cancel(sent) is ManagementOutcome.DONE
        place_order(session, delivery, b"18")
        raise RuntimeError("the card was declined")
    assert [message.body for message in delivery.waiting()] == [b"17"]


def test_hooks_are_called_for_one_transaction(delivery: TestDelivery) -> None:
    session, called = FakeTransaction(), list[str]()
    session.on_commit(lambda: called.append("committed"))
    session.on_rollback(lambda: called.append("rolled back"))
    session.commit()
    session.rollback()
    assert called == ["committed"]


def test_transactions_that_were_given_up_leave_nothing_to_later_ones(delivery: TestDelivery) -> None:
    for _ in range(50):  # CPython gives a later object the address of an earlier one
        place_order(FakeTransaction(), delivery, b"given up")
    for number in range(50):
        with FakeTransaction() as session:
            place_order(session, delivery, b"%d" % number)
    assert len(delivery.waiting()) == 50


def test_a_session_of_a_database_needs_a_store_in_it(delivery: TestDelivery) -> None:
    with pytest.raises(ConfigurationError, match="not in a object; for that use a SQL store"):
        delivery.enlist(object())


def test_it_stands_still_until_it_is_moved() -> None:
    clock = SettableClock(NOON)
    assert clock.now() == clock.now() == NOON
    assert clock.advance(timedelta(hours=1)) == NOON + timedelta(hours=1)
    assert clock.advance(0.5) == clock.now() == NOON + timedelta(hours=1, seconds=0.5)
    clock.set(NOON.astimezone())
    assert clock.now() == NOON
    assert clock.now().tzinfo is UTC


def test_a_naive_instant_is_refused() -> None:
    naive = datetime(2027, 1, 1)  # noqa: DTZ001 - what is refused
    with pytest.raises(InvalidMessageError, match="no time zone"):
        SettableClock(naive)
    clock = SettableClock(NOON)
    with pytest.raises(InvalidMessageError, match="no time zone"):
        clock.set(naive)
    assert clock.now() == NOON


@pytest.mark.parametrize(
    "span", [{"days": 1e9}, {"days": -1e6}, {"days": float("nan")}, {"seconds": float("inf")}, {"span": "a day"}]
)
def test_what_is_no_length_of_time_or_leads_too_far_is_refused(span: dict[str, Any]) -> None:
    clock = SettableClock(NOON)
    with pytest.raises(InvalidMessageError):
        clock.advance(**span)
    assert clock.now() == NOON


NO_QUEUE = Outcome(OutcomeKind.UNROUTABLE, "no such queue")
FULL = Outcome(OutcomeKind.REFUSED, "full")


def message(message_id: str, destination: str = "billing") -> DelayedMessage:
    due_time = datetime(2027, 1, 1, tzinfo=UTC)
    return DelayedMessage(message_id=message_id, destination=destination, due_time=due_time, body=b"")


def test_it_answers_as_told_by_destination_and_records() -> None:
    transport = RecordingTransport(
        {"nowhere": NO_QUEUE, "picky": lambda one: DELIVERED if one.message_id == "c" else FULL}
    )
    batch = [message("a"), message("b", "nowhere"), message("c", "picky"), message("d", "picky")]
    assert transport.send(batch, None, 5) == [DELIVERED, NO_QUEUE, DELIVERED, FULL]
    assert transport.sent == [batch[0], batch[2]]
    assert transport.attempts == list(zip(batch, [DELIVERED, NO_QUEUE, DELIVERED, FULL], strict=True))


def test_its_answers_may_change() -> None:
    transport = RecordingTransport({"billing": FULL})
    assert transport.send([message("a")], None, 5) == [FULL]
    del transport.outcomes["billing"]
    assert transport.send([message("a")], None, 5) == [DELIVERED]


def test_a_pretended_outage_leaves_everything_unconfirmed() -> None:
    transport = RecordingTransport(unavailable_reason="the broker is down")
    assert transport.unavailable() == "the broker is down"
    assert transport.send([message("a")], None, 5) == [Outcome(OutcomeKind.UNCONFIRMED, "the broker is down")]
    transport.unavailable_reason = None
    assert transport.unavailable() is None
    assert transport.send([message("a")], None, 5) == [DELIVERED]


def test_it_waits_for_what_another_thread_sends() -> None:
    transport = RecordingTransport()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.wait_for_sent, 2)
        transport.send([message("a")], None, 5)
        transport.send([message("b")], None, 5)
        assert [one.message_id for one in waiting.result(60)] == ["a", "b"]
    with pytest.raises(TimeoutError, match="2 messages were sent within 0 s, not 3"):
        transport.wait_for_sent(3, timeout=0)


def test_it_notes_what_was_declared() -> None:
    transport = RecordingTransport()
    transport.declare("billing")
    transport.declare("error")
    assert transport.declared == {"billing", "error"}
