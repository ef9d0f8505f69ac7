"""Where the search for due messages starts."""

from datetime import UTC, datetime, timedelta

import pytest

from delaystore.message import Position
from delaystore.stores.sql._claims import CHEAP, SHARE, DueScan

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
ENDED = Position(NOON, "m")


class Monotonic:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def monotonic() -> Monotonic:
    return Monotonic()


@pytest.fixture
def scan(monotonic: Monotonic) -> DueScan:
    """A scan after a search from the beginning that took a second and ended at ENDED."""
    scan = DueScan(monotonic)
    assert scan.start() is None
    scan.ended(None, 1.0, ENDED)
    return scan


def test_searches_go_on_until_the_next_full_one_is_allowed(scan: DueScan, monotonic: Monotonic) -> None:
    assert scan.start() == ENDED
    assert scan.until_full_scan() == timedelta(seconds=SHARE)
    monotonic.seconds += SHARE
    assert scan.until_full_scan() == timedelta(0)
    assert scan.start() is None


def test_after_a_cheap_search_the_next_one_is_full_again(monotonic: Monotonic) -> None:
    scan = DueScan(monotonic)
    scan.ended(None, CHEAP, ENDED)
    assert scan.start() is None
    assert scan.until_full_scan() == timedelta(0)
    scan.ended(None, CHEAP * 1.01, ENDED)
    assert scan.start() == ENDED


def test_searches_from_a_position_move_it_and_put_no_full_one_off(scan: DueScan, monotonic: Monotonic) -> None:
    later = Position(NOON + timedelta(seconds=1), "a")
    scan.ended(ENDED, 5.0, later)
    assert scan.start() == later
    scan.ended(later, 5.0, None)
    assert scan.start() == later
    monotonic.seconds += SHARE
    assert scan.start() is None


def test_a_full_search_that_finds_nothing_leaves_no_position(scan: DueScan, monotonic: Monotonic) -> None:
    monotonic.seconds += SHARE
    scan.ended(None, 1.0, None)
    assert scan.start() is None


@pytest.mark.parametrize(("at", "looks_back"), [(-1, True), (0, True), (1, False), (None, True)])
def test_what_is_stored_before_the_end_is_looked_for_at_once(scan: DueScan, at: int | None, looks_back: bool) -> None:
    scan.search_from_beginning(None if at is None else NOON + timedelta(seconds=at))
    assert (scan.start() is None) is looks_back
