"""Test that a reminder goes out three days later, without waiting for it.

Run it with `python -m pytest examples/test_reminders.py`; the fixtures come with delaystore.
"""

from datetime import timedelta

from delaystore import DelayedDelivery, DelayedMessage
from delaystore.testing import SettableClock, TestDelivery

PATIENCE = timedelta(days=3)


class Orders:
    """An application: orders that are to be paid within three days."""

    def __init__(self, delivery: DelayedDelivery) -> None:
        self._delivery = delivery
        self.mails: list[str] = []

    def place(self, number: str) -> None:
        """Take an order, and schedule its reminder."""
        self._delivery.send("reminders", number.encode(), delay=PATIENCE, message_id=number)

    def pay(self, number: str) -> None:
        """Take the payment of an order, which needs no reminder then."""
        self._delivery.cancel(number)

    def remind(self, message: DelayedMessage) -> None:
        """Remind of an order, and again after another three days; what a consumer of `reminders` does."""
        number = message.body.decode()
        self.mails.append(f"please pay {number}")
        self.place(number)


def test_the_reminder_goes_out_three_days_later(delayed_delivery: TestDelivery, clock: SettableClock) -> None:
    """It waits until then, and not longer."""
    orders = Orders(delayed_delivery)
    orders.place("A-1")
    delayed_delivery.assert_sent("reminders", "A-1", delay=PATIENCE)
    clock.advance(days=2, hours=23)
    assert delayed_delivery.dispatch_due() == []
    clock.advance(hours=1)
    assert [message.body for message in delayed_delivery.dispatch_due()] == [b"A-1"]


def test_who_has_paid_is_not_reminded_any_more(delayed_delivery: TestDelivery) -> None:
    """Two reminders are enough here."""
    orders = Orders(delayed_delivery)
    delayed_delivery.on("reminders", orders.remind)
    orders.place("A-1")
    delayed_delivery.dispatch_for(days=7)
    orders.pay("A-1")
    delayed_delivery.dispatch_for(days=30)
    assert orders.mails == ["please pay A-1", "please pay A-1"]
    assert delayed_delivery.waiting() == []


def test_it_works_with_sql_too(sql_delayed_delivery: TestDelivery, clock: SettableClock) -> None:
    """The same clock, and a SQLite file."""
    Orders(sql_delayed_delivery).place("A-1")
    clock.advance(PATIENCE)
    assert len(sql_delayed_delivery.dispatch_due()) == 1
