"""Recurring schedules."""

from typing import ClassVar

from django.db import migrations

from delaystore.integrations.django._tables import UpgradeTables


class Migration(migrations.Migration):  # type: ignore[misc] # Django ships no types
    """The tables as of version 0008 of the store."""

    atomic = False  # the tables are changed on a connection of the store's own
    dependencies: ClassVar[list[tuple[str, str]]] = [("delaystore", "0007_history")]
    operations: ClassVar = [UpgradeTables("0008")]
