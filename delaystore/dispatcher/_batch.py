"""A claimed batch: what becomes of its messages, and how many to claim at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from delaystore.dispatcher._error_queue import Failure
from delaystore.dispatcher.health import DispatchReport
from delaystore.dispatcher.observer import Phase, Stopwatch
from delaystore.message import DelayedMessage
from delaystore.stores.operable import OperableTransaction

FIRST_LIMIT: Final = 64
"""How many messages to ask for at first."""


@dataclass(slots=True)
class Batch:
    """The messages of one pass, by what has become of them so far; filled also when the pass fails."""

    at: datetime
    """What was due at this time was asked for."""
    messages: Sequence[DelayedMessage] = ()
    operable: OperableTransaction | None = None
    """The pass's transaction, if the store is operable."""
    full: bool = False
    """As many were fetched as were asked for."""
    again: bool = False
    """Some stay as they were that may go in the next pass."""
    sent_at: datetime | None = None
    """When it was sent, on the store's clock; None: it was not."""
    delivered: Sequence[DelayedMessage] = ()
    undeliverable: list[Failure] = field(default_factory=list)
    """For the error queue."""
    refused: list[Failure] = field(default_factory=list)
    """To be tried again."""
    unsettled: list[Failure] = field(default_factory=list)
    """Without an answer; they stay as they were."""
    giving_way: list[tuple[Failure, timedelta]] = field(default_factory=list)
    """Not to be sent for so long, so that others come first."""
    deferred: int = 0
    """How many of `giving_way` have no answer although the broker is there; why is not known."""
    unsuited: list[DelayedMessage] = field(default_factory=list)
    """Not due yet, and the transport cannot delay them; they stay until they are due."""
    moved: list[Failure] = field(default_factory=list)
    """In the error queue."""
    not_moved: list[Failure] = field(default_factory=list)
    """Not taken by the error queue, with the reason why not."""
    paused: list[DelayedMessage] = field(default_factory=list)
    """For a paused destination; to be parked."""
    parked: Sequence[DelayedMessage] = ()
    """Those of `paused` that the store has parked; the others stay as they were."""
    postponed: list[tuple[DelayedMessage, datetime]] = field(default_factory=list)
    """More than a limit allows, with their next attempts."""
    answered: bool = False
    """Whether the broker is known to have settled any of them."""
    silence: str = ""
    """Why the first of `unsettled` (or, if there are none, of those deferred) has no answer."""
    outage: str | None = None
    """Why the transport could send nothing more, asked after the last send; None: it could."""
    counting: bool = False
    """Whether failures are being counted in the store."""
    failed: int = 0
    """Failures that the store has counted."""
    gave_way: int = 0
    """How many of `giving_way` the store shows later."""
    shown_later: int = 0
    """How many of `postponed` the store shows later."""
    claims_lost: int = 0
    undone: Exception | None = None
    """Why its transaction was undone; None: it was not."""
    stopwatch: Stopwatch | None = None
    """None: there is no observer."""

    @property
    def arrived(self) -> Sequence[DelayedMessage]:
        """Messages at their destination or in the error queue; undoing the transaction does not undo that."""
        return [*self.delivered, *(failure.message for failure in self.moved)] if self.moved else self.delivered

    @property
    def silent(self) -> bool:
        """Whether messages have no answer, and that looks like an outage."""
        return bool(self.unsettled or (self.deferred and not self.answered))

    def leave_unsettled(self, message: DelayedMessage, reason: str) -> None:
        """Note that `message` has no answer."""
        if not self.unsettled:
            self.silence = reason
        self.unsettled.append(Failure(message, "Unsettled", reason))

    def begin(self, phase: Phase) -> None:
        """Tell the stopwatch that `phase` begins."""
        if self.stopwatch is not None:
            self.stopwatch.begin(phase)

    def report(self) -> DispatchReport:
        """What became of the batch, in numbers."""
        return DispatchReport(
            fetched=len(self.messages),
            delivered=len(self.delivered),
            moved_to_error_queue=len(self.moved),
            failed=self.failed,
            gave_way=self.gave_way,
            unsettled=len(self.unsettled),
            unsuited=len(self.unsuited),
            parked=len(self.parked),
            postponed=self.shown_later,
            claims_lost=self.claims_lost,
        )


class BatchSizer:
    """Decides how many messages to ask for: few at first, twice as many after each full batch.

    The bodies of a batch stay near `most_bytes`. `largest_body`: the longest body expected, in bytes; before the first
    batch, every body is taken to be that long.
    """

    def __init__(self, most: int, most_bytes: int, largest_body: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._average = 0.0
        self.limit = max(1, min(FIRST_LIMIT, most, most_bytes // largest_body))
        """How many messages to ask for next."""

    def learn(self, batch: Sequence[DelayedMessage]) -> None:
        """Take a fetched batch into account; an empty one changes nothing."""
        if not batch:
            return
        average = sum(len(message.body) for message in batch) / len(batch)
        # Longer bodies count at once, shorter ones slowly: memory matters more than speed.
        self._average = max(average, (self._average + average) / 2)
        wanted = self.limit * 2 if len(batch) >= self.limit else self.limit
        bearable = int(self._most_bytes // max(self._average, 1))
        self.limit = max(1, min(wanted, self._most, bearable))

    def slow_down(self) -> None:
        """The broker did not settle a batch in time: ask for half as many."""
        self.limit = max(1, self.limit // 2)
