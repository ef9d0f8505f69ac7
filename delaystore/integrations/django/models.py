"""What the admin shows; it has no table of Django's."""

from django.db import models


class WaitingMessage(models.Model):  # type: ignore[misc] # Django ships no types
    """A message that waits, for the admin's menu and permissions: rows are read through the store."""

    message_id = models.TextField(primary_key=True)

    class Meta:
        """`delete` is the permission to cancel, `change` the one to reschedule."""

        managed = False
        default_permissions = ("view", "change", "delete")
        verbose_name = "waiting message"

    def __str__(self) -> str:
        return str(self.message_id)
