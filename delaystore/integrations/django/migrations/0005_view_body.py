"""The permission to see the bodies of messages in the admin."""

from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):  # type: ignore[misc] # Django ships no types
    """Changes no table of the store."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("delaystore", "0004_audit")]
    operations: ClassVar = [
        migrations.AlterModelOptions(
            name="waitingmessage",
            options={
                "default_permissions": ("view", "change", "delete"),
                "managed": False,
                "permissions": (("view_body", "Can view the bodies of waiting messages"),),
                "verbose_name": "waiting message",
            },
        ),
    ]
