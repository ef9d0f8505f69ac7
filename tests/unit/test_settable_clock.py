from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaystore.errors import InvalidMessageError
from delaystore.testing import SettableClock

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)


def test_it_stands_still_until_it_is_moved() -> None:
    clock = SettableClock(NOON)
    assert clock.now() == clock.now() == NOON
    assert clock.advance(timedelta(hours=1)) == NOON + timedelta(hours=1)
    assert clock.advance(0.5) == clock.now() == NOON + timedelta(hours=1, seconds=0.5)
    clock.set(NOON.astimezone())
    assert clock.now() == NOON
    assert clock.now().tzinfo is UTC


def test_a_naive_instant_is_refused() -> None:
    naive = datetime(2027, 1, 1)  # noqa: DTZ001 - what is refused
    with pytest.raises(InvalidMessageError, match="no time zone"):
        SettableClock(naive)
    clock = SettableClock(NOON)
    with pytest.raises(InvalidMessageError, match="no time zone"):
        clock.set(naive)
    assert clock.now() == NOON


@pytest.mark.parametrize(
    "span", [{"days": 1e9}, {"days": -1e6}, {"days": float("nan")}, {"seconds": float("inf")}, {"span": "a day"}]
)
def test_what_is_no_length_of_time_or_leads_too_far_is_refused(span: dict[str, Any]) -> None:
    clock = SettableClock(NOON)
    with pytest.raises(InvalidMessageError):
        clock.advance(**span)
    assert clock.now() == NOON
