"""Operations of Django's migrations: they create, upgrade and drop the store's tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandError
from django.db import router
from django.db.migrations.operations.base import Operation
from typing_extensions import override

from delaystore.errors import DelaystoreError
from delaystore.integrations.django import delayed
from delaystore.integrations.django._delivery import DjangoStore, django_settings


class UpgradeTables(Operation):  # type: ignore[misc] # Django ships no types
    """Create or upgrade the store's tables, in the database that DELAYSTORE names, and in no other.

    `version`: of the store's schema, which the tables have at least afterwards. `drops`: going back drops the tables,
    unless messages wait in them; otherwise going back changes nothing.
    """

    reduces_to_sql = False

    def __init__(self, version: str, drops: bool = False) -> None:
        self.version = version
        self.drops = drops

    @override
    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model of Django's changes."""

    @override
    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if self._is_here(app_label, schema_editor):
            with _store() as store:
                store.setup_infrastructure()

    @override
    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if not self.drops or not self._is_here(app_label, schema_editor):
            return
        with _store() as store:
            waiting = store.remove_if_empty()
        if waiting:
            they = "1 message is waiting" if waiting == 1 else f"{waiting:,} messages are waiting"
            raise CommandError(
                f"{they} and would be lost with the tables; cancel the messages, or let a dispatcher deliver them"
            )

    @override
    def describe(self) -> str:
        return f"The tables of delayed messages, version {self.version}"

    @staticmethod
    def _is_here(app_label: str, schema_editor: Any) -> bool:
        alias = schema_editor.connection.alias
        return alias == django_settings().database and bool(router.allow_migrate(alias, app_label))


@contextmanager
def _store() -> Iterator[DjangoStore]:
    """The store; its errors become a CommandError, which manage.py shows in one line."""
    try:
        yield delayed.store
    except DelaystoreError as error:
        raise CommandError(str(error)) from None
