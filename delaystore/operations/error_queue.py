"""The error queue: list, replay and discard."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from typing_extensions import override

from delaystore.calls import ProgressListener, unwatched
from delaystore.errors import ConfigurationError, InvalidMessageError, TransportError, UnsupportedMessageError
from delaystore.message import DelayedMessage, check_destination
from delaystore.operations.failed_message import (
    ErrorFilter,
    ErrorGroup,
    ErrorReport,
    FailedMessage,
    Grouping,
    failed_message,
)
from delaystore.stores import documents
from delaystore.text import named_queue, queue_or_none
from delaystore.transports.abc import OpenQueue, Outcome, OutcomeKind, ReceivedMessage, TakenMessage, Transport
from delaystore.transports.shared import without_floats

BATCH: Final = 200
"""Messages that are sent together, and then removed."""
_TIMEOUT: Final = 30.0
"""Seconds for the confirms of one batch."""


class ErrorRun(ABC):
    """One pass over the error queue as it is at the beginning. Messages that do not match keep their places."""

    def __init__(self, transport: Transport, name: str, wanted: ErrorFilter, limit: int | None) -> None:
        self.report = ErrorReport()
        self._transport = transport
        self._name = name
        self._wanted = wanted
        self._limit = limit

    def run(self, progress: ProgressListener, stopping: Callable[[], bool]) -> None:
        """Do it. An outage on the way ends it, and the report has it; raises for one at the beginning."""
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
        """Do the work with a batch of matching messages."""

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
    """Removes matching messages."""

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
    """Sends the originals, and removes confirmed ones.

    A destination that does not exist or is unavailable is not tried again in this run.
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
        """The message to send; None: it stays."""
        try:
            original = failed.original(self._destination)
            self._transport.check(without_floats(original))
        except InvalidMessageError as error:
            self.report.leave(str(error))
            return None
        if is_same_queue(original.destination, self._name):  # it would lose why it is there, and come back
            self.report.leave("its destination is the error queue itself; give another destination")
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
        if outcome.kind in (OutcomeKind.UNROUTABLE, OutcomeKind.UNAVAILABLE):
            self._closed[original.destination] = f"{original.destination}: {outcome.reason}"
        if outcome.kind.passes and not moved:
            self.report.perhaps_twice += 1
        if outcome.kind is OutcomeKind.UNCONFIRMED:
            self.report.problem = outcome.reason


def is_same_queue(destination: str, queue: str) -> bool:
    """Whether messages for `destination` go to `queue`, a name or an address."""
    try:
        return queue_or_none(destination) == named_queue(queue)
    except UnsupportedMessageError:
        return False


class DryReplaying(Replaying):
    """Sends nothing: a dry run. It reports the transport's knowledge of the destinations."""

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


EXAMINED: Final = 10_000
"""Messages that one look is at, at most."""
LOOK_SECONDS: Final = 20.0
"""Seconds after which a look ends, wherever it is."""
_AT_ONCE: Final = 100
"""Messages taken at once."""
_EVERYTHING: Final = ErrorFilter()
Note = Callable[[str, str, int], object]
"""Notes a change that was made: the action, its object, and the number of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroups:
    """The groups of the error queue, the largest first.

    Attributes:
        groups: The groups.
        depth: Messages in the queue at the beginning.
        examined: Messages that were read, the oldest first; fewer than `depth` if there are many, if it took too
            long, or if other consumers hold some.

    """

    groups: Sequence[ErrorGroup]
    depth: int
    examined: int

    @property
    def complete(self) -> bool:
        """Whether all were looked at."""
        return self.examined >= self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPage:
    """A page of failed messages, in the queue's order.

    Attributes:
        messages: The messages, without their bodies.
        depth: As of `ErrorGroups`.
        examined: As of `ErrorGroups`.
        next_skip: How many matching messages to skip for the next page; None: this was the last.

    """

    messages: Sequence[FailedMessage]
    depth: int
    examined: int
    next_skip: int | None


class ErrorQueue:
    """The queue where messages go that cannot be forwarded.

    It holds messages of delaystore's dispatchers, of NServiceBus' endpoints, and of other programs. Reading changes
    nothing; meanwhile no other consumer gets the messages that were read.

    Args:
        transport: The transport of the queue.
        name: The queue's name, or `/queues/NAME`.
        note: Notes the changes of `replay` and `discard`, afterwards: the queue is the broker's, and shares no
            transaction with the store that keeps the audit trail. A process that dies in between leaves the change
            without an entry.

    Example:
        ```python
        errors = delivery.operations.errors
        for group in errors.groups().groups:
            print(group.count, group.destination, group.reason)
        errors.replay(ErrorFilter(destination="billing"))
        ```

    Raises:
        TransportError: By all methods, for a queue that is missing or may not be read.
        TransportUnavailableError: By all methods, when the broker cannot be reached.
        ConfigurationError: By all methods, for a transport that cannot read queues.

    """

    def __init__(self, transport: Transport, name: str, *, note: Note = lambda _action, _about, _count: None) -> None:
        self._transport = transport
        self.name: Final = name
        self.note: Final = note

    def noting(self, note: Note) -> "ErrorQueue":
        """Return the same queue, whose changes are noted in another way.

        Args:
            note: As of the constructor.

        Returns:
            The queue.

        """
        return ErrorQueue(self._transport, self.name, note=note)

    def depth(self) -> int | None:
        """How many messages are in it; None: there is no such queue, or the transport cannot tell."""
        return self._transport.depth(self.name)

    def groups(self, wanted: ErrorFilter = _EVERYTHING, *, examine: int = EXAMINED) -> ErrorGroups:
        """Group the messages that match. Bodies are not kept.

        Args:
            wanted: Which messages.
            examine: Maximum number of messages to look at, the oldest first. A look ends after 20 seconds.

        Returns:
            The groups.

        """
        grouping = Grouping()

        def visit(message: FailedMessage) -> bool:
            if wanted.matches(message):
                grouping.add(message)
            return True

        depth, examined = self._look(visit, examine)
        return ErrorGroups(groups=grouping.result(), depth=depth, examined=examined)

    def messages(
        self, wanted: ErrorFilter = _EVERYTHING, *, limit: int = 100, skip: int = 0, examine: int = EXAMINED
    ) -> ErrorPage:
        """List the messages that match, the oldest first, without their bodies.

        Args:
            wanted: Which messages.
            limit: Maximum number of messages of the page.
            skip: How many matching messages to skip: `next_skip` of the page before.
            examine: As for `groups`.

        Returns:
            The page, with the number of messages to skip for the next one.

        """
        matching = 0
        found: list[FailedMessage] = []

        def visit(message: FailedMessage) -> bool:
            nonlocal matching
            if wanted.matches(message):
                matching += 1
                if skip < matching <= skip + limit:
                    found.append(replace(message, body=None))
            return matching <= skip + limit

        depth, examined = self._look(visit, examine)
        more = matching > skip + limit
        return ErrorPage(messages=found, depth=depth, examined=examined, next_skip=skip + limit if more else None)

    def get(self, message_id: str, *, examine: int = EXAMINED) -> FailedMessage | None:
        """Look up a message.

        Args:
            message_id: Its id.
            examine: As for `groups`.

        Returns:
            The first message of that id, with its body; None: there is none among those looked at.

        """
        found: list[FailedMessage] = []

        def visit(message: FailedMessage) -> bool:
            if message.message_id == message_id:
                found.append(message)
            return not found

        self._look(visit, examine)
        return found[0] if found else None

    def replay(
        self,
        wanted: ErrorFilter = _EVERYTHING,
        *,
        destination: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        progress: ProgressListener = unwatched,
        stopping: Callable[[], bool] = lambda: False,
    ) -> ErrorReport:
        """Send the originals of failed messages to their destinations again, the oldest first.

        Each is sent as it was, with its id, headers, properties and expiration; once that is confirmed, it leaves the
        error queue. A message that its destination refuses stays. Killed at any moment nothing is lost: at worst the
        messages of one batch, 200 at most, are at their destination and still in the error queue. SQL queues move each
        batch in one transaction. A message that comes back meanwhile is not sent again: no more are looked at than were
        there at the beginning. Pauses and limits do not hold replayed messages.

        Args:
            wanted: Which messages.
            destination: Send all of them there; None: to their own destinations.
            limit: Maximum number of messages; None: all.
            dry_run: Send nothing, and report the result as far as it is known.
            progress: Called after each batch.
            stopping: Asked before each batch; True ends the run.

        Returns:
            The result, and the messages that stay with their reasons.

        Raises:
            ConfigurationError: `destination` is the error queue itself, or the transport cannot inspect queues.
            TransportError: The queue is missing or may not be read.

        """
        if destination is not None:
            check_destination(destination)
        if destination is not None and is_same_queue(destination, self.name):
            raise ConfigurationError(f"{destination!r} is the error queue itself; name another destination")
        kind = DryReplaying if dry_run else Replaying
        run = kind(self._transport, self.name, wanted, limit, destination)
        about = str(wanted) if destination is None else f"{wanted}, to {destination}"
        return self._run(run, "replay", about, progress, stopping)

    def discard(
        self,
        wanted: ErrorFilter = _EVERYTHING,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        progress: ProgressListener = unwatched,
        stopping: Callable[[], bool] = lambda: False,
    ) -> ErrorReport:
        """Remove messages for good, the oldest first.

        Args:
            wanted: Which messages.
            limit: Maximum number of messages; None: all.
            dry_run: Remove nothing, and report the messages that would be removed.
            progress: Called after each batch.
            stopping: Asked before each batch; True ends the run.

        Returns:
            The result, and the messages that stay with their reasons.

        Raises:
            ConfigurationError: The transport cannot inspect queues.
            TransportError: The queue is missing or may not be read.

        """
        run = Discarding(self._transport, self.name, wanted, limit, dry_run=dry_run)
        return self._run(run, "discard", str(wanted), progress, stopping)

    def _run(
        self, run: ErrorRun, action: str, about: str, progress: ProgressListener, stopping: Callable[[], bool]
    ) -> ErrorReport:
        try:
            run.run(progress, stopping)
        finally:
            if run.report.done and not run.report.dry_run:
                self.note(action, f"error queue {self.name}: {about}", run.report.done)
        return run.report

    def _look(self, visit: Callable[[FailedMessage], bool], examine: int) -> tuple[int, int]:
        """Show `visit` the oldest messages, `examine` at most and in bounded time, as long as it says True.

        Returns how many there were at the beginning, and how many it has seen. They go back to their places.
        """
        depth = self._transport.depth(self.name) or 0
        examined, most = 0, min(examine, depth)
        deadline = time.monotonic() + LOOK_SECONDS
        with self._transport.open_queue(self.name) as queue:
            while examined < most and time.monotonic() < deadline:
                taken = queue.take(min(_AT_ONCE, most - examined))
                if not taken:
                    break
                for one in taken:
                    examined += 1
                    if not visit(failed_message(one.message)):
                        return depth, examined
        return depth, examined


_CONTENT: Final = frozenset({"headers", "properties", "body"})


def groups_document(found: ErrorGroups) -> dict[str, Any]:
    """The groups of the error queue, for JSON; `filter`: the filter that the messages of a group match."""
    groups = [{**documents.record(group), "filter": group.wanted.as_dict()} for group in found.groups]
    return {"depth": found.depth, "examined": found.examined, "complete": found.complete, "groups": groups}


def page_document(found: ErrorPage) -> dict[str, Any]:
    """Failed messages without their bodies. `next`: how many to skip for the next page; null: this was the last."""
    messages = [summary_document(message) for message in found.messages]
    return {"depth": found.depth, "examined": found.examined, "messages": messages, "next": found.next_skip}


def summary_document(message: FailedMessage) -> dict[str, Any]:
    """Why a message is there. `size`: of the original's body, in bytes."""
    names = (each.name for each in fields(message) if each.name not in _CONTENT)
    return {name: documents.field(getattr(message, name)) for name in names}


def failed_document(message: FailedMessage) -> dict[str, Any]:
    """The same, with the original's headers, properties and body as they would be sent again."""
    original = ReceivedMessage(
        message_id=message.message_id,
        body=message.body or b"",
        headers=message.headers,
        properties=message.properties,
    )
    return {**summary_document(message), **documents.received(original)}
