"""The app."""

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from typing_extensions import override

from delaystore.errors import DelaystoreError


class DelaystoreConfig(AppConfig):  # type: ignore[misc] # Django ships no types
    """The app that INSTALLED_APPS names by `delaystore.integrations.django`."""

    name = "delaystore.integrations.django"
    label = "delaystore"
    verbose_name = "Delayed messages"
    default_auto_field = "django.db.models.AutoField"

    @override
    def ready(self) -> None:
        """Have `manage.py check` look at the settings."""
        checks.register(check_settings)


def check_settings(**_options: Any) -> list[checks.CheckMessage]:
    """Check the setting DELAYSTORE: a line for each mistake. Does not connect."""
    from delaystore.integrations.django._delivery import django_settings, store_url

    try:
        settings = django_settings()
        _ = settings.delivery
        store_url(connections[settings.database].settings_dict)
    except (ImproperlyConfigured, DelaystoreError) as error:
        return [checks.Error(str(error), id="delaystore.E001")]
    return []
