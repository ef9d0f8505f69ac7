"""Sending again, or removing, what is in the error queue: batch by batch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from typing_extensions import override

from delaystore.address import named_queue, queue_or_none
from delaystore.errors import InvalidMessageError, TransportError, UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.operations.error_groups import ErrorFilter
from delaystore.operations.error_report import ErrorReport
from delaystore.operations.failed_message import FailedMessage, failed_message
from delaystore.progress import ProgressListener
from delaystore.transports.abc import OpenQueue, Outcome, OutcomeKind, TakenMessage, Transport
from delaystore.transports.floats import without_floats

BATCH: Final = 200
"""Messages that are sent together, and then removed."""
_TIMEOUT: Final = 30.0
"""Seconds for the confirms of one batch."""


class ErrorRun(ABC):
    """One pass over the error queue as it is at the beginning. What does not match keeps its place."""

    def __init__(self, transport: Transport, name: str, wanted: ErrorFilter, limit: int | None) -> None:
        self.report = ErrorReport()
        self._transport = transport
        self._name = name
        self._wanted = wanted
        self._limit = limit

    def run(self, progress: ProgressListener, stopping: Callable[[], bool]) -> None:
        """Do it. An outage on the way ends it, and is told by the report; raises for one at the beginning."""
        self.report.depth = self._transport.depth(self._name) or 0
        begun = False
        try:
            with self._transport.open_queue(self._name) as queue:
                while self._goes_on(stopping) and (batch := self._next(queue)):
                    begun = True
                    self._handle(queue, self._chosen(batch))
                    progress("looked at", self.report.examined, self.report.depth)
        except TransportError as error:
            if not begun:
                raise
            self.report.problem = str(error)

    @abstractmethod
    def _handle(self, queue: OpenQueue, chosen: Sequence[tuple[TakenMessage, FailedMessage]]) -> None:
        """Do with a batch, of those that match, whatever is to be done."""

    def _goes_on(self, stopping: Callable[[], bool]) -> bool:
        report = self.report
        if report.problem is not None or (self._limit is not None and report.done >= self._limit):
            return False
        if report.examined >= report.depth:
            return False
        report.interrupted = stopping()
        return not report.interrupted

    def _next(self, queue: OpenQueue) -> Sequence[TakenMessage]:
        room = BATCH if self._limit is None else min(BATCH, self._limit - self.report.done)
        batch = queue.take(min(room, self.report.depth - self.report.examined))
        self.report.examined += len(batch)
        return batch

    def _chosen(self, batch: Sequence[TakenMessage]) -> list[tuple[TakenMessage, FailedMessage]]:
        read = ((one, failed_message(one.message)) for one in batch)
        return [(one, failed) for one, failed in read if self._wanted.matches(failed)]


class Discarding(ErrorRun):
    """Removes what matches."""

    def __init__(
        self, transport: Transport, name: str, wanted: ErrorFilter, limit: int | None, *, dry_run: bool
    ) -> None:
        super().__init__(transport, name, wanted, limit)
        self.report.dry_run = dry_run

    @override
    def _handle(self, queue: OpenQueue, chosen: Sequence[tuple[TakenMessage, FailedMessage]]) -> None:
        if chosen and not self.report.dry_run:
            queue.remove([one for one, _ in chosen])
        self.report.done += len(chosen)
        self.report.destinations.update(failed.destination or "" for _, failed in chosen)


class Replaying(ErrorRun):
    """Sends the originals, and removes what is confirmed.

    A destination that does not exist, or takes nothing at present, is not tried again in this run.
    """

    def __init__(
        self, transport: Transport, name: str, wanted: ErrorFilter, limit: int | None, destination: str | None
    ) -> None:
        super().__init__(transport, name, wanted, limit)
        self._destination = destination
        self._closed: dict[str, str] = {}
        """Why a destination is not tried again."""

    @override
    def _handle(self, queue: OpenQueue, chosen: Sequence[tuple[TakenMessage, FailedMessage]]) -> None:
        pairs = [(one, original) for one, failed in chosen if (original := self._original(failed)) is not None]
        if pairs:
            self._send(queue, [one for one, _ in pairs], [original for _, original in pairs])

    def _send(self, queue: OpenQueue, taken: Sequence[TakenMessage], originals: Sequence[DelayedMessage]) -> None:
        outcomes = queue.move(taken, originals, _TIMEOUT)
        moved = outcomes is not None
        if outcomes is None:
            outcomes = self._transport.send(originals, None, _TIMEOUT)
        delivered: list[tuple[TakenMessage, DelayedMessage]] = []
        for one, original, outcome in zip(taken, originals, outcomes, strict=True):
            if outcome.kind is OutcomeKind.DELIVERED:
                delivered.append((one, original))
            else:
                self._not_delivered(original, outcome, moved=moved)
        if not moved and delivered:
            self.report.perhaps_twice += len(delivered)
            queue.remove([one for one, _ in delivered])
            self.report.perhaps_twice -= len(delivered)
        self.report.done += len(delivered)
        self.report.destinations.update(original.destination for _, original in delivered)

    def _original(self, failed: FailedMessage) -> DelayedMessage | None:
        """What is to be sent; None: it stays."""
        try:
            original = failed.original(self._destination)
            self._transport.check(without_floats(original))
        except InvalidMessageError as error:
            self.report.leave(str(error))
            return None
        if is_same_queue(original.destination, self._name):  # it would lose why it is there, and come back
            self.report.leave("it was to go to the error queue itself; give another destination")
            return None
        reason = self._why_closed(original.destination)
        if reason is not None:
            self.report.leave(reason)
            return None
        return original

    def _why_closed(self, destination: str) -> str | None:
        return self._closed.get(destination)

    def _not_delivered(self, original: DelayedMessage, outcome: Outcome, *, moved: bool) -> None:
        self.report.leave(f"{original.destination}: {outcome.reason}")
        if outcome.kind in (OutcomeKind.UNROUTABLE, OutcomeKind.UNREADY):
            self._closed[original.destination] = f"{original.destination}: {outcome.reason}"
        if outcome.kind.passes and not moved:
            self.report.perhaps_twice += 1
        if outcome.kind is OutcomeKind.UNSETTLED:
            self.report.problem = outcome.reason


def is_same_queue(destination: str, queue: str) -> bool:
    """Whether messages for `destination` go to `queue`, a name or an address."""
    try:
        return queue_or_none(destination) == named_queue(queue)
    except UnsupportedMessageError:
        return False


class DryReplaying(Replaying):
    """Sends nothing: a dry run. Of destinations it tells what the transport knows of them."""

    def __init__(
        self, transport: Transport, name: str, wanted: ErrorFilter, limit: int | None, destination: str | None
    ) -> None:
        super().__init__(transport, name, wanted, limit, destination)
        self.report.dry_run = True
        self._reached: dict[str, bool | None] = {}

    @override
    def _send(self, queue: OpenQueue, taken: Sequence[TakenMessage], originals: Sequence[DelayedMessage]) -> None:
        self.report.done += len(originals)
        self.report.destinations.update(original.destination for original in originals)

    @override
    def _why_closed(self, destination: str) -> str | None:
        if destination not in self._reached:
            self._reached[destination] = self._transport.reaches(destination)
        return f"{destination}: there is no such destination" if self._reached[destination] is False else None
