"""What a dry run foretells, from what it has counted."""

from typing import Any

import pytest

from delaystore.spark.loading.report import Rehearsal
from delaystore.spark.options import OnDuplicate
from delaystore.spark.rejections import Reason, Rejections

ERROR, IGNORE, REPLACE = OnDuplicate.ERROR, OnDuplicate.IGNORE, OnDuplicate.REPLACE
BAD = Rejections({"due_time is null": Reason(2)})


def rehearsal(on_duplicate: OnDuplicate, **found: Any) -> Rehearsal:
    given = {"rejections": Rejections(), "twice": 0, "waiting": 0, "stops_at_rejects": True, **found}
    return Rehearsal(load_id=None, messages=10, examples=(), on_duplicate=on_duplicate, seconds=0, **given)


@pytest.mark.parametrize(
    ("on_duplicate", "found", "stored"),
    [
        (ERROR, {}, 10),
        (IGNORE, {"twice": 2, "waiting": 3}, 5),
        (IGNORE, {"twice": 2, "waiting": None}, 8),
        (REPLACE, {"waiting": 3}, 10),
        (ERROR, {"rejections": BAD, "stops_at_rejects": False}, 10),
    ],
)
def test_what_would_be_stored(on_duplicate: OnDuplicate, found: dict[str, Any], stored: int) -> None:
    foretold = rehearsal(on_duplicate, **found)
    assert (foretold.would_store, foretold.obstacles) == (stored, ())


@pytest.mark.parametrize(
    ("on_duplicate", "found", "obstacle"),
    [
        (ERROR, {"twice": 1}, "comes twice"),
        (ERROR, {"waiting": 1}, "waits in the store already"),
        (REPLACE, {"twice": 1}, "comes twice"),
        (IGNORE, {"rejections": BAD}, "see --rejects"),
    ],
)
def test_what_would_stop_the_load(on_duplicate: OnDuplicate, found: dict[str, Any], obstacle: str) -> None:
    foretold = rehearsal(on_duplicate, **found)
    assert foretold.would_store == 0
    (told,) = foretold.obstacles
    assert obstacle in told
