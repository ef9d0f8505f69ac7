"""Destinations that are paused or limited, as the store last said."""

import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final

from delaystore.dispatcher._operability import Operability
from delaystore.dispatcher.store_calls import StoreCalls
from delaystore.stores.operable import Destination

READ_EVERY: Final = 0.5
"""Seconds: passes obey a pause that was begun longer ago."""


class KnownDestinations:
    """Reads what the store says of destinations, at most so often. Threads may share it.

    `on_change` is called when something has changed.
    """

    def __init__(
        self, operability: Operability, store_calls: StoreCalls, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._operability = operability
        self._store_calls = store_calls
        self._monotonic = monotonic
        self._not_before = 0.0
        self.all: Sequence[Destination] = ()
        self.postponed_until: datetime | None = None
        """Until when limits may have postponed messages; None: it is not known yet, and not noted."""
        self.on_change: Callable[[], object] = lambda: None

    def read(self) -> None:
        """Read them, unless that was done a moment ago; call it before a fetch. Raises what the store raises."""
        if self._monotonic() < self._not_before:
            return
        store = self._operability.ask()
        if store is None:
            return
        begun = self._monotonic()
        with self._store_calls.call("asking which destinations are paused"):
            found = store.destinations()
        self._not_before = begun + READ_EVERY
        changed, self.all = found != self.all, found
        if changed:
            self.on_change()

    def forget(self) -> None:
        """Read them before the next fetch: they have changed."""
        self._not_before = 0.0

    def postponed(self, until: datetime) -> None:
        """Note that a limit has postponed a message until then."""
        if self.postponed_until is not None:
            self.postponed_until = max(self.postponed_until, until)

    def paused(self, now: datetime) -> Collection[str]:
        """The names of those that are paused at `now`, on the store's clock."""
        return {each.name for each in self.all if is_paused(each, now)}

    @property
    def limited(self) -> Collection[str]:
        """The names of those that have a limit."""
        return {each.name for each in self.all if each.max_rate is not None}


def is_paused(destination: Destination, now: datetime) -> bool:
    """Whether it is paused at `now`: a pause ends at its time, whoever notes that in the store."""
    return destination.paused and (destination.paused_until is None or destination.paused_until > now)
