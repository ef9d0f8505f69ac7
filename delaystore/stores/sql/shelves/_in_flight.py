"""Waiting for all transactions that are in flight."""

import time
from typing import Final

from sqlalchemy import Connection, text

from delaystore.bridge import pause

_FILLS: Final = "delaystore: fills a shelf"
"""A lock that all share who have it: it tells of a transaction that it sends no message."""
SENDS_NOTHING: Final = f"SELECT pg_advisory_xact_lock_shared(hashtextextended('{_FILLS}', 0))"
"""A statement at the beginning of a transaction that only fills a shelf or reads, so that `is_heeded` need not wait."""
_IN_FLIGHT: Final = text(
    "SELECT l.virtualtransaction, FALSE FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
    "JOIN pg_database d ON d.oid = a.datid WHERE d.datname = current_database() AND a.usesysid IS NOT NULL "
    "AND l.locktype = 'virtualxid' AND l.granted AND l.pid <> pg_backend_pid() "
    "AND NOT EXISTS (SELECT FROM pg_locks f WHERE f.virtualtransaction = l.virtualtransaction "
    "AND f.locktype = 'advisory' AND f.objsubid = 1 AND f.database = d.oid "
    "AND (CAST(f.classid AS BIGINT) << 32) | CAST(f.objid AS BIGINT) = hashtextextended(:fills, 0)) "
    "UNION ALL SELECT gid, TRUE FROM pg_prepared_xacts WHERE database = current_database()"
)
"""The transactions of the database, and whether each is prepared; not ours, autovacuum's, or those that send nothing.

What is filled meanwhile is compared with our shelf later, once it is announced itself.
"""
_LONGEST_PAUSE: Final = 0.05


def is_heeded(connection: Connection, patience: float) -> bool:
    """Whether all who may not see what is committed now end within `patience` seconds."""
    deadline, wait = time.monotonic() + patience, 0.001
    waited_for = set(_in_flight(connection))
    while waited_for and time.monotonic() < deadline:
        pause(wait)
        wait = min(2 * wait, _LONGEST_PAUSE)
        now = _in_flight(connection)
        # a transaction that is prepared meanwhile loses the name by which it was known, and lives on
        waited_for = {name for name, is_prepared in now.items() if is_prepared or name in waited_for}
    return not waited_for


def _in_flight(connection: Connection) -> dict[str, bool]:
    """Whether each transaction is prepared."""
    rows = connection.execute(_IN_FLIGHT, {"fills": _FILLS}).all()
    connection.commit()
    return {row[0]: row[1] for row in rows}
