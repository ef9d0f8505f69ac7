"""A Django app: messages sent in your transactions, tables made by `migrate`, an admin list, `manage.py delaystore`.

`delaystore.integrations.django` goes into INSTALLED_APPS, and DELAYSTORE into the settings.
"""

from delaystore.registry import needed_for

with needed_for("delaystore.integrations.django"):
    from delaystore.integrations.django._delivery import DjangoDelivery

__all__ = ["DjangoDelivery", "delayed"]

delayed = DjangoDelivery()
"""The delivery that the setting DELAYSTORE describes."""
