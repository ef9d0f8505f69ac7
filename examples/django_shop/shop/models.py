"""Orders."""

from django.db import models


class Order(models.Model):
    """What somebody ordered."""

    customer = models.CharField(max_length=100)
    paid = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"order {self.pk} of {self.customer}"
