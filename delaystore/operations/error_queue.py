"""The error queue: looked into, sent again, discarded."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.message import check_destination
from delaystore.operations._error_run import Discarding, DryReplaying, ErrorRun, Replaying, is_same_queue
from delaystore.operations.error_groups import ErrorFilter, ErrorGroup, Grouping
from delaystore.operations.error_report import ErrorReport
from delaystore.operations.failed_message import FailedMessage, failed_message
from delaystore.progress import ProgressListener, unwatched
from delaystore.transports.abc import Transport

EXAMINED: Final = 10_000
"""Messages that one look is at, at most."""
LOOK_SECONDS: Final = 20.0
"""Seconds after which a look ends, wherever it is."""
_AT_ONCE: Final = 100
"""Messages taken at once."""
_EVERYTHING: Final = ErrorFilter()

Note = Callable[[str, str, int], object]
"""Notes a change that was made: what was done, to what, and to how many messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroups:
    """What is in the error queue, by group, the largest first.

    `depth`: messages in it at the beginning. `examined`: those that were looked at, the oldest first; fewer than
    `depth` where there are many, where it took too long, or where somebody else has some.
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
    """Failed messages, without their bodies, in the queue's order. `depth`, `examined`: as of ErrorGroups.

    `next_skip`: how many matching ones to skip for the next page; None: this was the last.
    """

    messages: Sequence[FailedMessage]
    depth: int
    examined: int
    next_skip: int | None


class ErrorQueue:
    """The queue where messages go that cannot be forwarded.

    Messages of delaystore's dispatchers, of NServiceBus' endpoints, and of anybody else. Looking changes nothing; for
    its while nobody else gets what was looked at. `name`: a queue's name, or `/queues/NAME`. `note`: notes what
    `replay` and `discard` have changed.

    All methods raise TransportError for a queue that is missing or may not be read, TransportUnavailableError, and
    ConfigurationError for a transport that cannot look into queues.
    """

    def __init__(self, transport: Transport, name: str, *, note: Note = lambda _action, _about, _count: None) -> None:
        self._transport = transport
        self.name: Final = name
        self.note: Final = note

    def noting(self, note: Note) -> "ErrorQueue":
        """The same queue, whose changes are noted so."""
        return ErrorQueue(self._transport, self.name, note=note)

    def depth(self) -> int | None:
        """How many messages are in it; None: there is no such queue, or the transport cannot tell."""
        return self._transport.depth(self.name)

    def groups(self, wanted: ErrorFilter = _EVERYTHING, *, examine: int = EXAMINED) -> ErrorGroups:
        """The groups of the messages that match, of the `examine` oldest ones. Bodies are not kept."""
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
        """The messages that match, the oldest first, without the first `skip` of them; their bodies are left out."""
        matching = 0
        found: list[FailedMessage] = []

        def visit(message: FailedMessage) -> bool:
            nonlocal matching
            if wanted.matches(message):
                matching += 1
                if skip < matching <= skip + limit:
                    found.append(message.without_body())
            return matching <= skip + limit

        depth, examined = self._look(visit, examine)
        more = matching > skip + limit
        return ErrorPage(messages=found, depth=depth, examined=examined, next_skip=skip + limit if more else None)

    def get(self, message_id: str, *, examine: int = EXAMINED) -> FailedMessage | None:
        """The first message of that id, with its body; None: there is none among the `examine` oldest ones."""
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
        """Send the originals of what matches to their destinations, or all to `destination`, the oldest first.

        `limit`: so many at most. Each is sent as it was, with its id, headers, properties and expiration; once that is
        confirmed, it leaves the error queue. What its destination does not take stays. Killed at any moment nothing is
        lost: at worst the messages of one batch, 200 at most, are at their destination and still in the error queue.
        SQL queues move each batch in one transaction. What comes back meanwhile is not sent again: no more are looked
        at than were there at the beginning. `dry_run`: send nothing, and tell what would be done, as far as is known.
        `stopping` is asked before each batch. Pauses and limits are a store's: what is sent again passes them by.
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
        """Remove what matches for good, the oldest first; arguments as for `replay`."""
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
