"""Orders placed and paid: an order and its reminder are committed together, or not at all."""

from django.db import transaction

from delaystore.integrations.django import delayed
from shop.models import Order


def place(customer: str) -> Order:
    """A new order; if nobody pays it, a reminder goes out in three days."""
    with transaction.atomic():
        order = Order.objects.create(customer=customer)
        delayed.send("reminders", str(order.pk).encode(), delay=3 * 24 * 3600, message_id=f"reminder-{order.pk}")
    return order


def pay(order: Order) -> None:
    """The order is paid, and nobody is reminded."""
    with transaction.atomic():
        order.paid = True
        order.save()
        delayed.cancel(f"reminder-{order.pk}")
