"""The model that the admin shows; it has no table of Django's."""

from typing import Self

from django.db import models

from delaystore.message import DelayedMessage


class WaitingMessage(models.Model):  # type: ignore[misc] # Django ships no types
    """A waiting message, for the admin's pages, permissions and log: rows are read and changed through the store.

    Attributes:
        message: The message as the store has it; only instances made by `of` have one.

    """

    message_id = models.TextField(primary_key=True)
    message: DelayedMessage

    class Meta:
        """`delete` is the permission to cancel, `change` the permission to reschedule and to send now."""

        managed = False
        default_permissions = ("view", "change", "delete")
        permissions = (("view_body", "Can view the bodies of waiting messages"),)
        verbose_name = "waiting message"

    @classmethod
    def of(cls, message: DelayedMessage) -> Self:
        """The instance that shows `message`."""
        shown = cls(message_id=message.message_id)
        shown.message = message
        return shown

    def __str__(self) -> str:
        return str(self.message_id)
