"""What the shop promises about reminders."""

from django.contrib.auth.models import User
from django.test import TestCase

from delaystore.integrations.django import delayed
from shop.models import Order
from shop.orders import pay, place


class Reminders(TestCase):
    """Runs in a transaction that is rolled back, as every TestCase of Django's."""

    def test_an_order_is_followed_by_a_reminder(self) -> None:
        order = place("Ada")
        reminder = delayed.get(f"reminder-{order.pk}")
        self.assertEqual(reminder.destination, "reminders")

    def test_nobody_is_reminded_of_what_is_paid(self) -> None:
        order = place("Ada")
        pay(order)
        self.assertTrue(Order.objects.get(pk=order.pk).paid)
        self.assertIsNone(delayed.get(f"reminder-{order.pk}"))

    def test_support_cancels_a_reminder_in_the_admin(self) -> None:
        order = place("Ada")
        self.client.force_login(User.objects.create_superuser("support"))
        confirmed = {"action": "cancel_messages", "_selected_action": f"reminder-{order.pk}", "post": "yes"}
        page = self.client.post("/admin/delaystore/waitingmessage/", confirmed, follow=True)
        self.assertContains(page, f"Cancelled: 1 message (reminder-{order.pk}).")
        self.assertIsNone(delayed.get(f"reminder-{order.pk}"))
