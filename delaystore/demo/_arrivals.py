"""What arrived, how often and how late."""

from collections.abc import Iterable
from datetime import datetime, timedelta


class Arrivals:
    """Compares what was sent with what arrived. One thread calls `expect`, another `note`."""

    def __init__(self) -> None:
        self._due: dict[str, datetime] = {}
        self._arrived: dict[str, int] = {}
        self.lateness: list[timedelta] = []
        """IncomingMessage less due time, of each message's first arrival; negative: it arrived before it was due."""

    def expect(self, message_id: str, due_time: datetime) -> None:
        """Expect a message that is about to be sent."""
        self._due[message_id] = due_time

    def note(self, message_ids: Iterable[str], now: datetime) -> None:
        """Note messages that arrived at `now`."""
        for message_id in message_ids:
            if message_id not in self._arrived:
                self.lateness.append(now - self._due[message_id])
            self._arrived[message_id] = self._arrived.get(message_id, 0) + 1

    @property
    def delivered(self) -> int:
        """How many different messages arrived."""
        return len(self._arrived)

    @property
    def duplicated(self) -> int:
        """How many messages arrived more than once."""
        return sum(count > 1 for count in list(self._arrived.values()))
