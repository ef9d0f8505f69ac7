"""A SQL store as a target: its tables can be checked, and many rows read at a time."""

import os
from collections.abc import Iterator, Sequence
from datetime import datetime

from sqlalchemy import URL, select
from typing_extensions import override

from delaystore.migrations.abc import Problem
from delaystore.migrations.targets._store import StoreTarget
from delaystore.sql.engine import sqlite_file
from delaystore.sql.errors import translated_errors
from delaystore.sql.names import default_table_name
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.schema import delayed_table
from delaystore.stores.sql.setup import HEAD, current_version


class SqlStoreTarget(StoreTarget):
    """The table of `endpoint` in a database."""

    def __init__(self, store: SqlDelayedMessageStore, endpoint: str) -> None:
        name = default_table_name(endpoint)
        super().__init__(store, endpoint, f"{name} in {_database_label(store.engine.url)}")
        self._engine = store.engine
        self._table = delayed_table(name, None, leases=False)

    @override
    def infrastructure_problems(self) -> Sequence[Problem]:
        """Missing tables are a warning: they are created, and older ones upgraded, when the run begins."""
        new = [Problem(self.label, "does not exist, and will be created", fatal=False)]
        file = sqlite_file(self._engine.url)
        if file is not None and not file.exists():  # connecting would create it
            return new
        with translated_errors(), self._engine.connect() as connection:
            version = current_version(connection, self._table)
        if version is None:
            return new
        if version > HEAD:
            return [Problem(self.label, f"has schema version {version}, which this release does not know; upgrade it")]
        return []

    @override
    def waiting(self, ids: Sequence[str]) -> Iterator[tuple[str, str, datetime]]:
        columns = self._table.c
        statement = select(columns.message_id, columns.destination, columns.due_time)
        with translated_errors(), self._engine.connect() as connection:
            rows = connection.execute(statement.where(columns.message_id.in_(ids))).all()
        return ((row.message_id, row.destination, row.due_time) for row in rows)


def _database_label(url: URL) -> str:
    """The database, without user, password and options."""
    if sqlite_file(url) is not None:
        return f"sqlite {os.path.realpath(url.database or '')}"
    port = "" if url.port is None else f":{url.port}"
    return f"{url.get_backend_name()} {url.host or ''}{port}/{url.database or ''}"
