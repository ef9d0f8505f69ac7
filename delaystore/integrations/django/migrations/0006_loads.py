"""The latest delivery time of a message, its load, and the shift of an operation."""

from typing import ClassVar

from django.db import migrations

from delaystore.integrations.django._tables import UpgradeTables


class Migration(migrations.Migration):  # type: ignore[misc] # Django ships no types
    """The tables as of version 0006 of the store."""

    atomic = False  # the tables are changed on a connection of the store's own
    dependencies: ClassVar[list[tuple[str, str]]] = [("delaystore", "0005_view_body")]
    operations: ClassVar = [UpgradeTables("0006")]
