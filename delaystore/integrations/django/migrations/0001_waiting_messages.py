"""The tables in which messages wait, and the permissions of the admin."""

from typing import ClassVar

from django.db import migrations, models

from delaystore.integrations.django._tables import UpgradeTables


class Migration(migrations.Migration):  # type: ignore[misc] # Django ships no types
    """The tables as of version 0002 of the store."""

    initial = True
    atomic = False  # the tables are made on a connection of the store's own
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="WaitingMessage",
            fields=[("message_id", models.TextField(primary_key=True, serialize=False))],
            options={
                "verbose_name": "waiting message",
                "managed": False,
                "default_permissions": ("view", "change", "delete"),
            },
        ),
        UpgradeTables("0002", drops=True),
    ]
