"""What abandoned loads left, and its removal."""

from datetime import timedelta
from typing import Final

from delaystore.loading.staging._loads import Cleaned
from delaystore.loading.staging._sql.database import LoadDatabase
from delaystore.loading.staging._sql.registry import Registry, is_abandoned

UNNAMED_KEPT: Final = timedelta(days=1)
"""How long a load that nobody named is remembered: for its own process, should that ask again what has become of it."""


def clean_up(database: LoadDatabase, own: str | None = None) -> Cleaned:
    """Forget abandoned loads, and drop every staging that no living load has; the run `own` is alive.

    A load is registered before its staging is made. So stagings are listed first, and loads after: a staging whose
    load is not found has none.
    """
    names, registry = database.staging_names(), Registry(database)
    forgotten: list[str] = []
    kept: set[str] = set()
    if database.has(database.registry):
        forgotten = _forget(database, registry, own)
        registry.forget_unnamed(database.store.now() - UNNAMED_KEPT)
        with database.reading() as connection:
            kept = {database.staging(row.token).name for row in registry.rows(connection) if row.token is not None}
    dropped: list[str] = []
    in_use: list[str] = []
    for name in names:
        if name not in kept:
            (dropped if database.drop(name) else in_use).append(name)
    return Cleaned(tuple(forgotten), tuple(dropped), tuple(in_use))


def _forget(database: LoadDatabase, registry: Registry, own: str | None) -> list[str]:
    """A load that is being promoted has its row locked, and is passed over, however old its lease."""
    forgotten = []
    with database.writing() as bound:
        now = database.store.now()
        for found in registry.rows(bound.connection):
            if found.token in (None, own) or not is_abandoned(found, now):
                continue
            row = registry.locked(bound.connection, found.load_id)
            if row is not None and row.token == found.token and is_abandoned(row, now):
                registry.release(bound.connection, row)
                if row.finished_at is None:  # of a stream, what it has finished stays known
                    forgotten.append(row.load_id)
    return forgotten
