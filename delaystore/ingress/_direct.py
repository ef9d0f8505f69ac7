"""Forwarding at once what is due soon."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from delaystore.delivery import DelayedDelivery
from delaystore.ingress._entry import Entry, Fate
from delaystore.transports.abc import OutcomeKind, Transport

_READ_EVERY: Final = 0.5
"""Seconds: a pause that was begun longer ago is obeyed."""
_REST: Final = 10.0
"""Seconds in which a destination that has not answered gets nothing at once; or none does, if the broker has not."""


class Direct:
    """Forwards messages that are due within less than `below`.

    What is paused or limited, or takes nothing at present, goes into the store. So no batch waits for the same silence
    again and again.
    """

    def __init__(self, delivery: DelayedDelivery, transport: Transport, below: timedelta, timeout: float) -> None:
        self._delivery = delivery
        self._transport = transport
        self._below = below
        self._timeout = timeout
        self._governed: frozenset[str] = frozenset()
        """Destinations that are paused or limited."""
        self._read_at = float("-inf")
        self._silent: dict[str, float] = {}
        """Destinations that have not answered, and until when they get nothing."""
        self._rests_until = float("-inf")

    def forward(self, entries: Sequence[Entry], now: datetime) -> None:
        """Give those that are due soon, and confirmed by the broker, their fate. Raises StoreError."""
        if not self._below or time.monotonic() < self._rests_until:
            return
        before = now + self._below
        barred = self._read() | self._still_silent()
        soon = [
            entry for entry in entries if entry.message.due_time < before and entry.message.destination not in barred
        ]
        if not soon:
            return
        outcomes = self._transport.send([entry.message for entry in soon], None, self._timeout)
        rest = time.monotonic() + _REST
        for entry, outcome in zip(soon, outcomes, strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                entry.fate = Fate.DIRECT
            elif outcome.kind is OutcomeKind.UNREADY:
                self._silent[entry.message.destination] = rest
            elif outcome.kind is OutcomeKind.UNSETTLED:
                self._rests_until = rest

    def _still_silent(self) -> frozenset[str]:
        now = time.monotonic()
        self._silent = {destination: until for destination, until in self._silent.items() if now < until}
        return frozenset(self._silent)

    def _read(self) -> frozenset[str]:
        if self._delivery.operations.are_available and time.monotonic() - self._read_at > _READ_EVERY:
            self._read_at = time.monotonic()
            self._governed = frozenset(
                each.name
                for each in self._delivery.operations.destinations()
                if each.paused or each.max_rate is not None
            )
        return self._governed
