"""Names of the tables of a run."""

import pytest

from delaystore.migrations.sources._sql.tables import BATCHES, RUNS, SIDE
from delaystore.stores.sql.dialects import DIALECTS
from delaystore.stores.sql.urls import derived_name


@pytest.mark.parametrize("suffix", [SIDE, RUNS, BATCHES])
def test_a_name_that_leaves_room_is_kept(suffix: str) -> None:
    assert derived_name("sales_delayed", suffix, DIALECTS["postgresql"]) == f"sales_delayed{suffix}"


@pytest.mark.parametrize(("database", "limit"), [("postgresql", 63), ("mysql", 64), ("mssql", 128)])
@pytest.mark.parametrize("name", ["x" * 200, "ü" * 100, "a" + "😀" * 60])
def test_a_long_name_is_shortened_to_what_fits_and_stays_its_own(name: str, database: str, limit: int) -> None:
    dialect = DIALECTS[database]
    short = derived_name(name, SIDE, dialect)
    assert len(short.encode()) <= limit
    assert short.endswith(SIDE)
    assert short != derived_name(name + "x", SIDE, dialect)
    assert short != derived_name(name, RUNS, dialect)
