"""A SQL store as a target: its tables can be looked at, and read many rows at a time."""

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from sqlalchemy import URL, Engine, select

from delaystore.migrations.abc import Problem
from delaystore.migrations.targets.store import StoreTarget
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.stores.sql.names import default_table_name
from delaystore.stores.sql.schema import delayed_table
from delaystore.stores.sql.setup import HEAD, current_version
from delaystore.stores.sql.translation import translated_errors


class SqlStoreTarget(StoreTarget):
    """The table of `endpoint` in a database."""

    def __init__(self, store: SqlDelayedMessageStore, endpoint: str) -> None:
        name = default_table_name(endpoint)
        super().__init__(store, endpoint, f"{name} in {_place(store.engine.url)}")
        self._engine = store.engine
        self._table = delayed_table(name, None, leases=False)

    def infrastructure(self) -> Sequence[Problem]:
        """Tables that are missing, or older, are seen to when the run begins. Raises StoreError."""
        new = [Problem(self.label, "does not exist, and will be created", fatal=False)]
        if _is_no_file(self._engine):  # looking shall not create it
            return new
        with translated_errors(), self._engine.connect() as connection:
            version = current_version(connection, self._table)
        if version is None:
            return new
        if version > HEAD:
            return [Problem(self.label, f"has schema version {version}, which this release does not know; upgrade it")]
        return []

    def waiting(self, ids: Sequence[str]) -> Iterator[tuple[str, str, datetime]]:
        """By the primary key."""
        columns = self._table.c
        statement = select(columns.message_id, columns.destination, columns.due_time)
        with translated_errors(), self._engine.connect() as connection:
            rows = connection.execute(statement.where(columns.message_id.in_(ids))).all()
        return ((row.message_id, row.destination, row.due_time) for row in rows)


def _place(url: URL) -> str:
    """The database, whoever logs in to it and however."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite {os.path.realpath(url.database or '')}"
    port = "" if url.port is None else f":{url.port}"
    return f"{url.get_backend_name()} {url.host or ''}{port}/{url.database or ''}"


def _is_no_file(engine: Engine) -> bool:
    database = engine.url.database or ""
    return engine.dialect.name == "sqlite" and not database.startswith("file:") and not Path(database).exists()
