"""Names of the tables of a run."""

from hashlib import sha256
from typing import Final

from delaystore.stores.sql.names import MAX_IDENTIFIER_BYTES

SIDE: Final = "_migrating"
"""The table of the hidden rows."""
RUNS: Final = "_migration_run"
BATCHES: Final = "_migration_batches"
_DIGEST: Final = 8


def derived_name(table: str, suffix: str, dialect_name: str) -> str:
    """The name of what belongs to `table`; a digest stands for the end of a name that leaves no room for the suffix.

    The tables are somebody else's and cannot be renamed, so that a long name must not stop a migration.
    """
    limit = MAX_IDENTIFIER_BYTES[dialect_name]
    if len((table + suffix).encode()) <= limit:
        return table + suffix
    ending = "_" + sha256(table.encode()).hexdigest()[:_DIGEST] + suffix
    return table.encode()[: limit - len(ending)].decode(errors="ignore") + ending
