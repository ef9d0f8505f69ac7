"""Which staging a store has, by its URL."""

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.loading.options import StoreOptions
from delaystore.loading.staging._loads import Cleaned, LoadStatus
from delaystore.loading.staging._owner import Owner
from delaystore.loading.staging._plain import PlainStaging
from delaystore.loading.staging._sql.database import load_database
from delaystore.loading.staging._sql.dialects import STAGING_DIALECTS
from delaystore.loading.staging._sql.leftovers import clean_up
from delaystore.loading.staging._sql.run import SqlStaging, sql_loads, sql_waiting_ids
from delaystore.loading.staging.abc import Staging
from delaystore.settings import TransactionMode
from delaystore.sql.errors import configuration_errors
from delaystore.sql.urls import database_url, sqlite_file
from delaystore.stores import open_store
from delaystore.stores.abc import ManagedDelayedMessageStore

_MEMORY: Final = "memory"


def open_staging(options: StoreOptions, lease_seconds: int, owner: Owner | None = None) -> Staging:
    """A staging for one run of a load; connects to nothing.

    `owner`: the process with which the load ends; None: the parent of the one that calls `begin`.
    Raises ConfigurationError for a store that cannot be loaded from other processes, and for an endpoint, schema or
    table whose name it does not take.
    """
    if _is_sql(options):
        with load_database(options):  # only names are checked
            pass
        return SqlStaging(_absolute(options), lease_seconds, owner)
    return PlainStaging(options)


def set_up(options: StoreOptions) -> None:
    """Make the tables of messages and of loads, where they are missing; a store without staging makes its own later."""
    if _is_sql(options):
        with load_database(options) as database:
            database.set_up()


def cleanup(options: StoreOptions) -> Cleaned:
    """Remove what abandoned loads into the endpoint left: once their lease has ended, or their process has."""
    if not _is_sql(options):
        return Cleaned()
    with load_database(options) as database:
        return clean_up(database)


def list_loads(options: StoreOptions) -> Sequence[LoadStatus]:
    """The loads into the endpoint that are running, abandoned or finished, the newest last."""
    return sql_loads(options) if _is_sql(options) else []


def load_status(options: StoreOptions, load_id: str) -> LoadStatus | None:
    """The load, or stream, of that id. None: it is unknown; stores that others wrote know none."""
    found = sql_loads(options, load_id) if _is_sql(options) else []
    return found[0] if found else None


def waiting_ids(options: StoreOptions, ids: Iterable[str]) -> set[str] | None:
    """Which of these ids wait in the store already; None: it cannot list what waits."""
    if _is_sql(options):
        return sql_waiting_ids(options, ids)
    with closing(open_store(options.store)) as store:
        if not isinstance(store, ManagedDelayedMessageStore):
            return None
        store.initialize(options.endpoint, TransactionMode.NONE)
        return {message_id for message_id in ids if store.get(message_id) is not None}


def _is_sql(options: StoreOptions) -> bool:
    scheme = options.store.partition(":")[0].partition("+")[0].lower()
    if scheme == _MEMORY:
        raise ConfigurationError(
            "a store in memory cannot be loaded, for it ends with its process, and Spark's tasks are others; use a "
            "database, such as sqlite:///app.db"
        )
    return scheme in STAGING_DIALECTS


def _absolute(options: StoreOptions) -> StoreOptions:
    """The options with the path of a file, if there is one, as tasks in other folders need it."""
    with configuration_errors():
        url = database_url(options.store)
    if sqlite_file(url) is None or not url.database or url.database.startswith(("file:", ":")):
        return options
    path = url.set(database=os.path.abspath(url.database))
    return replace(options, store=path.render_as_string(hide_password=False))
