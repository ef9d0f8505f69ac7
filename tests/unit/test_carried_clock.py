import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import repeat

import pytest

from delaystore import clock as clocks
from delaystore.clock import ExtrapolatedClock

START = datetime(2027, 1, 1, tzinfo=UTC)


class FarAway:
    """A clock whose every question takes a second each way, or `seconds`; `passed`: seconds, for both ends."""

    def __init__(self) -> None:
        self.passed = 100.0
        self.step = timedelta(0)
        self.asked = 0
        self.seconds: Iterator[float] = repeat(1.0)

    @property
    def there(self) -> datetime:
        return START + self.step + timedelta(seconds=self.passed)

    def read(self) -> datetime:
        self.asked += 1
        seconds = next(self.seconds)
        self.passed += seconds
        instant = self.there
        self.passed += seconds
        return instant

    def monotonic(self) -> float:
        return self.passed


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> FarAway:
    far = FarAway()
    monkeypatch.setattr(clocks.time, "monotonic", far.monotonic)
    return far


def test_it_is_behind_by_one_question_at_most_and_never_ahead(far: FarAway) -> None:
    clock = ExtrapolatedClock(far.read)
    for _ in range(50):
        now = clock.now()
        assert timedelta(0) <= far.there - now <= timedelta(seconds=2)
        far.passed += 0.7


def test_where_it_may_not_be_behind_it_is_ahead_by_one_question_at_most(far: FarAway) -> None:
    clock = ExtrapolatedClock(far.read, fresh_for=math.inf, never_behind=True)
    clock.now()
    for _ in range(50):
        now = clock.now()
        assert timedelta(0) <= now - far.there <= timedelta(seconds=2)
        far.passed += 0.7
    assert far.asked == clocks._QUESTIONS, "it asked for a quicker answer, and then carried the quickest on"


def test_the_quickest_answer_is_carried_on(far: FarAway) -> None:
    clock = ExtrapolatedClock(far.read, never_behind=True)
    far.seconds = iter([1.0, 0.001, 1.0])
    assert timedelta(0) <= clock.now() - far.there <= timedelta(seconds=0.002)
    assert far.asked == 2


def test_it_asks_only_where_the_answer_is_not_fresh(far: FarAway) -> None:
    clock = ExtrapolatedClock(far.read, fresh_for=30)
    clock.now()
    far.passed += 29
    clock.now()
    assert far.asked == 1
    far.passed += 2
    clock.now()
    assert far.asked == 2


def test_a_step_back_is_noticed_with_the_next_question(far: FarAway) -> None:
    clock = ExtrapolatedClock(far.read)
    clock.now()
    far.step = timedelta(hours=-1)
    assert clock.now() > far.there
    far.passed += 11
    assert clock.now() <= far.there


def test_who_may_not_ask_goes_by_the_last_answer_however_old(far: FarAway) -> None:
    clock = ExtrapolatedClock(far.read)
    clock.now()
    far.passed += 3600
    assert far.there - clock.now_unasked() == timedelta(seconds=1)
    assert far.asked == 1


def test_what_asking_raises_is_raised_and_asked_again(far: FarAway) -> None:
    answers = iter([OSError("no answer"), START])

    def read() -> datetime:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    clock = ExtrapolatedClock(read)
    with pytest.raises(OSError, match="no answer"):
        clock.now()
    assert clock.now() == START
