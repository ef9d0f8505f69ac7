"""What operators do with what waits."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, Position
from delaystore.operations import _search
from delaystore.operations._search import CountListener, EndpointAccess, Export, Preview
from delaystore.operations.changes import AuditKept, MessageRequest, OperationListener, RequestResult
from delaystore.operations.error_queue import ErrorQueue
from delaystore.operations.overview import Inquiry, Overview
from delaystore.stores.abc import ManagementOutcome, Page
from delaystore.stores.operable import (
    AuditEntry,
    Destination,
    OperableDelayedMessageStore,
    Operation,
    OperationKind,
    Way,
)


class Operations:
    """Search, preview, export, change and pause what waits for an endpoint; made by `DelayedDelivery.operations`.

    Each change is noted in the store, with who made it. Threads may share it. Everything but `overview` raises
    ConfigurationError where the store offers no operations, StoreSetupError where its tables are of an earlier release
    (call `setup_infrastructure`), InvalidMessageError for what no message can have, and StoreError when the store
    fails: what was changed until then stays changed, and the call can be made again.
    """

    def __init__(self, access: EndpointAccess, inquiry: Inquiry | None = None) -> None:
        self._access = access
        self._inquiry = inquiry or Inquiry()

    @property
    def by(self) -> str:
        """In whose name changes are noted."""
        return self._access.actor.by

    @property
    def endpoint(self) -> str:
        """Whose messages these are."""
        return self._access.endpoint

    def acting_as(self, by: str | None = None, *, way: Way | None = None) -> "Operations":
        """The same in another name, or by another way.

        Args:
            by: In whose name changes are noted; None: as before, at first `user@host`.
            way: By which way they are asked for; None: as before, at first that of a program's operations.

        Raises:
            InvalidMessageError: `by` is no name.

        """
        if by is not None and (not isinstance(by, str) or not by.strip()):
            raise InvalidMessageError(f"who acts? {by!r} is no name")
        return Operations(replace(self._access, actor=self._access.actor.acting(by, way)), self._inquiry)

    @property
    def are_available(self) -> bool:
        """Whether the store offers them; False: it is of another kind, or its tables are of an earlier release."""
        store = self._access.store
        return isinstance(store, OperableDelayedMessageStore) and store.is_operable

    # what waits

    def search(self, wanted: MessageFilter, *, after: Position | None = None, limit: int = 100) -> Page:
        """A page of the messages that match, the next to be tried first, behind `after`.

        It looks at a bounded number of messages: a page may be short, or empty, although more match. `next_key` says
        where to go on; None: that was the end.
        """
        return _search.search(self._access, wanted, after, limit)

    def export(self, wanted: MessageFilter, *, after: Position | None = None) -> Iterator[DelayedMessage]:
        """All messages that match, the next to be tried first, behind `after`.

        It is no snapshot: what is rescheduled or resumed meanwhile may come twice, or not at all.
        """
        chunks = self.chunks(wanted, after=after)
        while (chunk := chunks.next()) is not None:
            yield from chunk

    def chunks(self, wanted: MessageFilter, *, after: Position | None = None) -> Export:
        """As `export`, some hundreds of messages at a time."""
        return Export(self._access, wanted, after)

    def preview(
        self,
        wanted: MessageFilter,
        *,
        sample: int = 5,
        at_most: int | None = None,
        progress: CountListener | None = None,
    ) -> Preview:
        """How many messages match, and the first `sample` of them; changes nothing.

        `at_most`: stop counting from there on. `progress` is called with the count so far; what it raises ends it.
        """
        return _search.preview(self._access, wanted, sample, at_most, progress)

    # operations on many messages

    def begin_cancel(self, wanted: MessageFilter) -> Operation:
        """Keep in the store that all that match are to be cancelled; `run` does it."""
        return self._access.bulk.begin(OperationKind.CANCEL, wanted)

    def begin_reschedule(
        self, wanted: MessageFilter, *, delay: timedelta | float | None = None, at: datetime | None = None
    ) -> Operation:
        """Keep in the store that all that match are to be due `at` (an aware datetime); `run` does it.

        Or after `delay` (a timedelta or seconds) from now: all at the same time. They get fresh retries.
        """
        due_time = self._access.due_time(delay, at)
        return self._access.bulk.begin(OperationKind.RESCHEDULE, wanted, due_time)

    def run(self, operation_id: str, progress: OperationListener | None = None) -> Operation:
        """Take steps until the operation has ended, from where it was left; no message is changed twice.

        `progress` is called after each step; what it raises ends the run. What a dispatcher has is left alone, and
        counted as held. Killed at any point, `run` with the same id goes on. One that has ended is returned as it is;
        ConfigurationError: there is none of that id.
        """
        return self._access.bulk.run(operation_id, progress)

    def cancel(self, wanted: MessageFilter, progress: OperationListener | None = None) -> Operation:
        """Cancel all that match: `begin_cancel` and `run`."""
        return self.run(self.begin_cancel(wanted).operation_id, progress)

    def reschedule(
        self,
        wanted: MessageFilter,
        *,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        progress: OperationListener | None = None,
    ) -> Operation:
        """Reschedule all that match: `begin_reschedule` and `run`."""
        return self.run(self.begin_reschedule(wanted, delay=delay, at=at).operation_id, progress)

    def abandon(self, operation_id: str) -> Operation | None:
        """End an operation that runs; what it changed stays changed. None: there is none of that id."""
        return self._access.bulk.abandon(operation_id)

    def operation(self, operation_id: str) -> Operation | None:
        """The operation of that id; None: there is none."""
        return self._access.bulk.get(operation_id)

    def operations(self, limit: int = 20) -> Sequence[Operation]:
        """The last ones that were begun, the newest first."""
        store = self._access.operable()
        with self._access.call("listing operations"):
            return store.operations(limit)

    # one message

    def send_now(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Make the waiting message of that id or key due now, unless a dispatcher has it; it gets fresh retries."""
        return self._access.messages.send_now(message_id, key=key)

    def cancel_one(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Delete the waiting message of that id or key, unless a dispatcher has claimed it."""
        return self._access.messages.cancel(message_id, key=key)

    def reschedule_one(
        self,
        message_id: str | None = None,
        *,
        key: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
    ) -> ManagementOutcome:
        """Give a waiting message a new due time and fresh retries, unless a dispatcher has claimed it."""
        return self._access.messages.reschedule(message_id, key=key, delay=delay, at=at)

    def cancel_all(self, message_ids: Sequence[str], wanted: MessageFilter, about: str) -> int:
        """Cancel those of these few messages that wait unclaimed, in one transaction; returns how many.

        `wanted`: by which filter they were found; `about`: what they are, in words; the audit entry has both.
        """
        return self._access.messages.cancel_all(message_ids, wanted, about)

    def do_all(self, requests: Sequence[MessageRequest], *, most_bytes: int = 16 * 2**20) -> Sequence[RequestResult]:
        """Do what was asked about single messages in one transaction, in order, and note each change by its asker.

        Returns the results of the first of `requests`: of all, unless the bodies that were looked up have reached
        `most_bytes`; so one at least. Raises StoreError where the store fails: then nothing of it was done.
        A store without transactions, as the one in memory, has done those before the failure.
        """
        return self._access.messages.do_all(requests, most_bytes)

    # destinations

    def pause(self, destination: str, *, until: datetime | None = None, progress: CountListener | None = None) -> int:
        """Have all dispatchers keep messages for `destination` from now on, and park what is due.

        `until`: when it resumes by itself, in place of what was said before; None: never. Returns how many messages
        were parked. `progress` is called with the number so far; what it raises ends the parking, not the pause:
        dispatchers go on with it.
        """
        return _search.pause(self._access, destination, until, progress)

    def resume(self, destination: str, *, progress: CountListener | None = None) -> int:
        """Let messages for `destination` go again, also what is parked; returns how many of these there were.

        0 also where it was not paused. `progress` as for `pause`.
        """
        return _search.resume(self._access, destination, progress)

    def limit_rate(self, destination: str, max_rate: float | None) -> None:
        """Let at most `max_rate` messages a second go to `destination`, from all dispatchers; None: any number."""
        _search.limit_rate(self._access, destination, max_rate)

    def destinations(self) -> Sequence[Destination]:
        """Those that are paused, limited, or resuming, by name."""
        store = self._access.operable()
        with self._access.call("listing destinations"):
            return store.destinations()

    def backlog(self, most: int = 1_000) -> Mapping[str, int]:
        """How many messages wait for each destination, the most first, of `most` destinations. Reads all that waits."""
        store = self._access.operable()
        with self._access.call("counting by destination"):
            return store.count_by_destination(most)

    # what could not be forwarded

    @property
    def errors(self) -> ErrorQueue:
        """The error queue: looked into, sent again, discarded; raises ConfigurationError without a transport.

        It takes no operable store, but where there is one, changes are noted in it.
        """
        if self._access.transport is None:
            raise ConfigurationError("the error queue takes a transport; give this endpoint one")
        return ErrorQueue(self._access.transport, self._access.settings.error_queue, note=self._note_if_possible)

    # how it is, and who changed what

    def note(self, action: str, about: str, count: int) -> None:
        """Note a change that was made elsewhere, of so many messages. `action`: one word; `about`: what, for people.

        A store that does not take it is told of in the log, and not raised.
        """
        self._access.note(action, about, count)

    def now(self) -> datetime:
        """The time by the store's clock, UTC."""
        with self._access.call("asking for the time"):
            return self._access.store.now()

    def latest_now(self) -> datetime:
        """The time by the store's clock, never behind it: a delay that counts from it is never too short."""
        with self._access.call("asking for the time"):
            return self._access.store.latest_now()

    def due(self, since: datetime, until: datetime, bucket: timedelta) -> Mapping[datetime, int]:
        """How many messages are to be tried in each `bucket`, in whole seconds, of since <= next attempt < until.

        By the buckets' beginnings, as counted from 1970-01-01 UTC.
        """
        store = self._access.operable()
        with self._access.call("counting by time"):
            return store.count_between(since, until, bucket)

    def changes(self, limit: int = 100, before: datetime | None = None) -> Sequence[AuditEntry]:
        """The last changes that were made, the newest first; `before`: from before that time only."""
        store = self._access.operable()
        with self._access.call("listing changes"):
            return store.changes(limit, before)

    def audit_kept(self) -> AuditKept:
        """Whose changes are noted, and for how long they are kept, as the dispatchers that live report it."""
        store = self._access.operable()
        with self._access.call("listing dispatchers"):
            return AuditKept.of(store.dispatchers())

    def overview(self, timeout: float = 5.0) -> Overview:
        """How the endpoint is doing; asks store and transport for about `timeout` seconds, and raises nothing."""
        return self._inquiry.overview(self._access, timeout)

    def _note_if_possible(self, action: str, about: str, count: int) -> None:
        with suppress(ConfigurationError):
            self._access.note(action, about, count)
