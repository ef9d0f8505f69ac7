"""Random changes of a schedule, outages and deliveries: no occurrence is lost, doubled, or of a former definition."""

import random
from datetime import timedelta
from typing import Any, Final

import pytest

from delaystore.testing import TestDelivery

RULES: Final = ("* * * * *", "*/3 * * * *", "*/20 * * * * *", "0,30 * * * *")
STEPS: Final = ("put", "pause", "resume", "skip", "dispatch", "dispatch", "dispatch", "outage")


class Story:
    """Random steps, chosen by a seed, and what arrived."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.delivery = TestDelivery()
        self.arrived: list[str] = []
        self.definition: dict[str, Any] = {}
        self._put()

    def step(self) -> None:
        schedules, choice = self.delivery.schedules, self._random.choice(STEPS)
        if choice == "put":
            self._put()
        elif choice == "skip":
            if times := schedules.upcoming("a", 4):
                schedules.skip("a", self._random.choice(times))
        elif choice == "outage":
            self.delivery.clock.advance(seconds=self._random.randint(1, 400))
        elif choice == "dispatch":
            span = timedelta(seconds=self._random.randint(0, 200))
            self.arrived += [each.message_id for each in self.delivery.dispatch_for(span)]
        else:
            (schedules.pause if choice == "pause" else schedules.resume)("a")

    def check(self) -> None:
        state, waiting = self.delivery.schedules.get("a"), self.delivery.waiting()
        assert state is not None
        assert len({*self.arrived}) == len(self.arrived)
        assert state.made == len(self.arrived) + len(waiting)
        assert {each.body for each in waiting} <= {self.definition["body"]}
        assert min(state.missed, state.overlapped, state.skipped) >= 0
        if state.remaining is not None:
            assert state.remaining == max(0, self.definition["max_runs"] - state.made)

    def _put(self) -> None:
        choose, now = self._random.choice, self.delivery.clock.now()
        self.definition = {
            "cron": choose(RULES),
            "body": str(self._random.random()).encode(),
            "max_runs": choose([None, None, 5, 12]),
            "if_waiting": choose(["allow", "allow", "skip"]),
            "catch_up": choose(["last", "all", "none"]),
            "starts": choose([None, None, now + timedelta(minutes=self._random.randint(-3, 3))]),
            "ends": choose([None, None, None, now + timedelta(minutes=self._random.randint(4, 20))]),
        }
        self.delivery.schedules.put("a", destination="billing", **self.definition)


@pytest.mark.parametrize("seed", range(20))
def test_occurrences_are_made_once_by_the_present_definition(seed: int) -> None:
    story = Story(seed)
    for _ in range(40):
        story.step()
        story.check()
