"""The ids of messages that a sender has sent, to cancel, reschedule or use again."""

import random
import time
from collections import OrderedDict
from itertools import islice

RECENT = 200
REMEMBERED = 2000
ARRIVED = (2.0, 8.0)
"""Seconds since its due time in which a message has probably arrived; a paused dispatcher may still have it."""


class Remembered:
    """Ids that are acknowledged, and mean one message each."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._due: OrderedDict[str, float] = OrderedDict()

    def add(self, message_id: str, due: float) -> None:
        """Remember an id; `due`: by time.time(), about."""
        self._due[message_id] = due
        if len(self._due) > REMEMBERED:
            self._due.popitem(last=False)

    def forget(self, message_id: str) -> None:
        """It means another message now, or perhaps does."""
        self._due.pop(message_id, None)

    def recent(self) -> str | None:
        """One of those sent last, whose message probably waits; None: there is none."""
        return self._one_of(list(islice(reversed(self._due), RECENT)))

    def arrived(self) -> str | None:
        """One whose message has probably arrived; None: there is none."""
        soonest, latest = (time.time() - seconds for seconds in ARRIVED)
        return self._one_of([message_id for message_id, due in self._due.items() if latest < due < soonest])

    def _one_of(self, ids: list[str]) -> str | None:
        return self._chance.choice(ids) if ids else None
