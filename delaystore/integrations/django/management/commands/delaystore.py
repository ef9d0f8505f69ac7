"""`manage.py delaystore ...`: the command line, about the endpoint and the database that the settings name."""

import os
import sys
from importlib.metadata import entry_points
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from typing_extensions import override

from delaystore.integrations.django._delivery import django_settings, store_url


class Command(BaseCommand):  # type: ignore[misc] # Django ships no types
    """Runs `delaystore` with --store, --endpoint, --schema, --table and --transport from the settings."""

    help = "Run the delaystore command line: dispatch, list, cancel, reschedule, status, ... (--help lists all)."
    requires_system_checks: tuple[str, ...] = ()

    @override
    def run_from_argv(self, argv: list[str]) -> None:
        """Hand everything behind `manage.py delaystore` on; ends the process as the command line does."""
        try:
            _set_defaults()
        except Exception as error:
            sys.stderr.write(f"error: {error}\n")
            sys.exit(2)
        (command,) = entry_points(group="console_scripts", name="delaystore")
        sys.argv = ["delaystore", *argv[2:]]
        command.load()()

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        raise CommandError("run it from the command line: manage.py delaystore --help")


def _set_defaults() -> None:
    """Set the command line's variables for this process; those of its surroundings come first."""
    settings = django_settings()
    url = store_url(connections[settings.database].settings_dict)
    defaults = {
        "STORE": url.render_as_string(hide_password=False),
        "ENDPOINT": settings.endpoint,
        "SCHEMA": settings.schema,
        "TABLE": settings.table,
        "TRANSPORT": settings.transport,
    }
    for name, value in defaults.items():
        if value is not None:
            os.environ.setdefault(f"DELAYSTORE_{name}", value)
