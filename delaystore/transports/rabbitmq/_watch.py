"""Telling a broker that is silent from destinations that are.

Everything here runs in the owner thread.
"""

import time
from collections.abc import Callable, Collection
from typing import Any, Final

from delaystore.transports.rabbitmq._in_flight import InFlightBatch
from delaystore.transports.rabbitmq.pika_internals import SilenceError, unsent

QUIET: Final = 1.0
"""Seconds without an answer after which the broker is asked for a sign of life."""
DOUBT: Final = 2.0
"""Seconds without a sign of life after which the broker counts as silent."""
SILENCE_SECONDS: Final = 10.0
"""Seconds without a sign of life after which its connection is given up."""
_BACKLOG: Final = 4096
"""Bytes yet to leave from which on their leaving is progress: fewer are a heartbeat, or the question itself."""


class Watch:
    """Watches one connection: a round trip on a channel of its own tells whether the broker lives.

    Answers to a batch say that too, and heartbeats do not: a broker sends them whatever it reads. Bytes that leave the
    machine are progress. `changed` is called when the broker has given a sign of life.
    """

    def __init__(self, connection: Any, changed: Callable[[], None]) -> None:
        self._connection = connection
        self._changed = changed
        self._signed_at = time.monotonic()
        """When the broker last gave a sign of life."""
        self._moved_at = 0.0
        """When bytes were last seen to have left."""
        self.gone = 0
        """Bytes that had left at the last look."""
        self._backlog = 0
        """Bytes that had not, then."""
        self._asked_at: float | None = None
        """When the broker was asked, and has not answered yet."""
        self._doubted = False
        """Whether a sender takes it to be silent until it answers."""

    @property
    def awaiting(self) -> bool:
        """Whether the broker was asked, and has not answered yet."""
        return self._asked_at is not None

    @property
    def silent(self) -> bool:
        """Whether the broker gives no sign of life."""
        return self._doubted or self._silence() >= DOUBT

    @property
    def dead(self) -> SilenceError | None:
        """Why its connection is worth nothing: it has given none for long. None: it may be worth something."""
        return SilenceError(f"no answer within {SILENCE_SECONDS:g} s") if self._silence() >= SILENCE_SECONDS else None

    @property
    def moving(self) -> bool:
        """Whether bytes are still leaving."""
        self._look()
        return self._backlog >= _BACKLOG and time.monotonic() - self._moved_at < QUIET

    def lives_since(self, moment: float) -> bool:
        """Whether the broker gave a sign of life a moment ago, and after `moment` (of time.monotonic)."""
        return self._signed_at > moment and time.monotonic() - self._signed_at < DOUBT

    def heed(self, batches: Collection[InFlightBatch], *, alarm: bool) -> None:
        """Take notice of the answers to `batches`, which are in flight; ask for a sign of life if there are none.

        A batch hears news once the broker lives, and answers no more of it. `alarm`: the broker says itself that it
        reads nothing.
        """
        self._look()
        now = time.monotonic()
        for batch in batches:
            if batch.heard_at > batch.began_at:  # otherwise it has heard nothing, and has only begun
                self._sign(batch.heard_at)
            idle_since = max(batch.heard_at, self._moved_at)
            if batch.partly_answered and now - idle_since >= QUIET and self._signed_at > idle_since:
                batch.news.set()
        first = min((batch.began_at for batch in batches), default=now)
        if alarm and self._asked_at is not None:
            self._asked_at = now
        elif not alarm and now - max(self._signed_at, self._moved_at, first) >= QUIET:
            self.ask()

    def doubt(self) -> None:
        """Take the broker to be silent until it gives a sign of life, and ask for one."""
        self._doubted = True
        self.ask()

    def ask(self) -> None:
        """Ask for a sign of life, unless the answer to an earlier question is awaited. Raises pika's NoFreeChannels."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._connection.channel(on_open_callback=self._answered)

    def _answered(self, channel: Any) -> None:
        channel.close()
        self._asked_at = None
        self._sign(time.monotonic())
        self._changed()

    def _sign(self, at: float) -> None:
        if at > self._signed_at:
            self._signed_at = at
            self._doubted = False

    def _silence(self) -> float:
        """Seconds since the broker was asked, without a sign of life or bytes that left."""
        if self._asked_at is None:
            return 0.0
        return time.monotonic() - max(self._asked_at, self._signed_at, self._moved_at)

    def _look(self) -> None:
        before, self._backlog = self._backlog, unsent(self._connection)
        gone = self._connection.bytes_sent - self._backlog
        if gone > self.gone and before >= _BACKLOG:
            self._moved_at = time.monotonic()
        self.gone = gone
