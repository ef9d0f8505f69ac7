"""The setting DELAYSTORE, read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from delaystore.errors import ConfigurationError
from delaystore.settings import DelayedDeliverySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DjangoSettings:
    """What DELAYSTORE says, in capitals there."""

    endpoint: str
    database: str = "default"
    """The alias in DATABASES."""
    transport: str | None = None
    """A URL, for `manage.py delaystore dispatch`."""
    schema: str | None = None
    table: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of DelayedDeliverySettings."""

    @property
    def delivery(self) -> DelayedDeliverySettings:
        """Settings of the delivery; the tables are made by Django's migrations, not by the first message."""
        try:
            return DelayedDeliverySettings(**{"automatic_setup": False, **self.settings})
        except (TypeError, ConfigurationError) as error:
            raise ImproperlyConfigured(f"DELAYSTORE['SETTINGS']: {error}") from None


def django_settings() -> DjangoSettings:
    """The setting as it is now. Raises ImproperlyConfigured, saying what to write."""
    given = getattr(settings, "DELAYSTORE", None)
    if not isinstance(given, Mapping) or not given.get("ENDPOINT"):
        raise ImproperlyConfigured('set DELAYSTORE = {"ENDPOINT": "NAME"}: the program whose messages these are')
    known = {each.name.upper() for each in fields(DjangoSettings)}
    if unknown := sorted(str(name) for name in given if name not in known):
        raise ImproperlyConfigured(f"DELAYSTORE has no {unknown[0]!r}; it takes {', '.join(sorted(known))}")
    read = DjangoSettings(**{name.lower(): value for name, value in given.items()})
    if read.database not in settings.DATABASES:
        raise ImproperlyConfigured(f"DELAYSTORE['DATABASE'] is {read.database!r}, which DATABASES does not have")
    return read
