"""Names of the tables of a run; see `derived_name`."""

from typing import Final

SIDE: Final = "_migrating"
"""The table of the hidden rows."""
RUNS: Final = "_migration_run"
BATCHES: Final = "_migration_batches"
