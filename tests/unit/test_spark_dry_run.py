"""What a dry run foretells, from what it has counted."""

from typing import Any

import pytest

from delaystore.bulk.options import OnDuplicate, WriteOptions
from delaystore.bulk.rejects import Reason, Rejects
from delaystore.bulk.request import DryRun, Obstacle

ERROR, IGNORE, REPLACE = OnDuplicate.ERROR, OnDuplicate.IGNORE, OnDuplicate.REPLACE
BAD = Rejects({"due_time is null": Reason(2)})


def dry_run(on_duplicate: OnDuplicate, **found: Any) -> DryRun:
    folder = found.pop("folder", None)
    given = WriteOptions(store="sqlite:///app.db", endpoint="sales", on_duplicate=on_duplicate, rejects=folder)
    counts = {"rejects": Rejects(), "twice": 0, "waiting": 0, **found}
    return DryRun(given=given, messages=10, twice_examples=(), waiting_examples=(), seconds=0, **counts)


@pytest.mark.parametrize(
    ("on_duplicate", "found", "stored"),
    [
        (ERROR, {}, 10),
        (IGNORE, {"twice": 2, "waiting": 3}, 5),
        (IGNORE, {"twice": 2, "waiting": None}, 8),
        (REPLACE, {"waiting": 3}, 10),
        (ERROR, {"rejects": BAD, "folder": "bad"}, 10),
    ],
)
def test_what_would_be_stored(on_duplicate: OnDuplicate, found: dict[str, Any], stored: int) -> None:
    foretold = dry_run(on_duplicate, **found)
    assert (foretold.would_store, foretold.obstacles) == (stored, ())


@pytest.mark.parametrize(
    ("on_duplicate", "found", "obstacle"),
    [
        (ERROR, {"twice": 1}, Obstacle.TWICE),
        (ERROR, {"waiting": 1}, Obstacle.WAITING),
        (REPLACE, {"twice": 1}, Obstacle.TWICE),
        (IGNORE, {"rejects": BAD}, Obstacle.REJECTS),
    ],
)
def test_what_would_stop_the_load(on_duplicate: OnDuplicate, found: dict[str, Any], obstacle: Obstacle) -> None:
    foretold = dry_run(on_duplicate, **found)
    assert foretold.would_store == 0
    assert foretold.obstacles == (obstacle,)
