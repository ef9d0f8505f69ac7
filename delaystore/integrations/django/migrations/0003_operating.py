"""Failures, and the tables of what operators and dispatchers note."""

from typing import ClassVar

from django.db import migrations

from delaystore.integrations.django._tables import UpgradeTables


class Migration(migrations.Migration):  # type: ignore[misc] # Django ships no types
    """The tables as of version 0004 of the store."""

    atomic = False  # the tables are changed on a connection of the store's own
    dependencies: ClassVar[list[tuple[str, str]]] = [("delaystore", "0002_keys")]
    operations: ClassVar = [UpgradeTables("0004")]
