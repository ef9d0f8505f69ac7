"""What operators do with waiting messages."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from secrets import token_hex
from time import monotonic, sleep
from typing import Final

from delaystore.errors import ConfigurationError, StorePermissionError, StoreSetupError
from delaystore.filters import MessageFilter, Shift
from delaystore.message import (
    DelayedMessage,
    Position,
    check_destination,
    check_message_id,
    made_at,
    unmarked,
    waiting_until,
)
from delaystore.operations._search import CountListener, EndpointAccess, Export, Preview, check_pause_end
from delaystore.operations.changes import (
    MOST_BYTES,
    AuditKept,
    MessageRequest,
    OperationListener,
    RequestResult,
    new_due_time,
    reschedule_action,
)
from delaystore.operations.error_queue import ErrorQueue
from delaystore.operations.loads import Loads
from delaystore.operations.overview import Inquiry, Overview, history_gaps
from delaystore.processes import actor_name
from delaystore.stores.abc import ManagementOutcome, Page
from delaystore.stores.history import (
    HistoryEntry,
    HistoryFilter,
    HistoryPage,
    HistoryStatus,
    MessageLife,
    StoreWithHistory,
)
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.stores.records import (
    AuditEntry,
    ChangeAction,
    Destination,
    Matching,
    Operation,
    OperationKind,
    OperationState,
    Way,
)

_ID_BYTES: Final = 5
"""Few, so that people can type the id. The store refuses one that is taken."""
_PAUSE: Final = 0.5
"""The pause after a step, as a part of its time. Without it, messages that become due meanwhile are late."""
_LONGEST_PAUSE: Final = 0.5
"""Seconds."""
_FASTEST: Final = 23_000
"""Messages that an operation changes per second at the most, for the sake of others."""
_ONCE_MORE: Final = 1.0
"""Seconds until the cancel of a load tries messages again that dispatchers had. By then these know of its pause."""


def new_operation_id() -> str:
    """Return an id for an operation."""
    return token_hex(_ID_BYTES)


class Operations:
    """Search, preview, export and change the waiting messages of an endpoint; made by `DelayedDelivery.operations`.

    Each change is noted in the store's audit trail, with who made it; by the way of a program (see `acting_as`) only if
    the endpoint notes all. Threads may share it.

    Args:
        access: The endpoint.
        inquiry: Asks how the endpoint is doing; None: a new one.

    Raises:
        ConfigurationError: By all methods but `overview`, where the store offers no operations.
        StoreSetupError: By these, where its tables are of an earlier release; call `setup_infrastructure`.
        InvalidMessageError: By these, for values that no message can have.
        StoreError: By these, when the store fails; changes until then stay, and the call can be made again.

    Example:
        ::

            operations = delivery.operations.acting_as("ada")
            wanted = MessageFilter(destination="billing", headers={"campaign": "spring"})
            print(operations.preview(wanted).count)
            operations.cancel(wanted)

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
            way: By which way they are requested; None: as before, at first a program's operations.

        Returns:
            The operations in that name.

        Raises:
            InvalidMessageError: `by` is no name.

        """
        return Operations(replace(self._access, actor=self._access.actor.acting(actor_name(by), way)), self._inquiry)

    @property
    def are_available(self) -> bool:
        """Whether the store offers them; False: it is of another kind, or its tables are of an earlier release."""
        store = self._access.store
        return isinstance(store, OperableDelayedMessageStore) and store.is_operable

    # search

    def search(self, wanted: MessageFilter, *, after: Position | None = None, limit: int = 100) -> Page:
        """Find a page of the messages that match, by their next attempt.

        Args:
            wanted: The filter.
            after: `next_key` of the page before.
            limit: Maximum number of messages of the page.

        Returns:
            The page. It is made of a bounded number of messages that were looked at, so it may be short, or empty,
            although more match; its `next_key` is None only at the end.

        """
        store = self._access.operable()
        with self._access.call("searching messages"):
            return store.search(wanted, after=after, limit=limit)

    def export(self, wanted: MessageFilter, *, after: Position | None = None) -> Iterator[DelayedMessage]:
        """Yield all messages that match, by their next attempt.

        It is no snapshot: a message that is rescheduled or resumed meanwhile may come twice, or not at all.

        Args:
            wanted: The filter.
            after: The position behind which to begin; None: from the first message.

        Returns:
            The messages, which are read some hundreds at a time.

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
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        by: timedelta | float | None = None,
        time_zone: str | None = None,
        sample: int = 5,
        at_most: int | None = None,
        seconds: float = math.inf,
        progress: CountListener | None = None,
    ) -> Preview:
        """Count the messages that match, and find the first of them; changes nothing.

        Args:
            wanted: The filter.
            delay: The new due time of a reschedule, as for `begin_reschedule`; or else give `at`, `by`, or none.
            at: As for `begin_reschedule`.
            by: As for `begin_reschedule`.
            time_zone: As for `begin_reschedule`.
            sample: How many of the messages the result has.
            at_most: Stop counting from this number on; None: count all.
            seconds: Stop counting after this time.
            progress: Called with the number so far; an error that it raises ends the counting.

        Returns:
            The number of messages, and the first of them; for a reschedule also the due times before and after it.

        """
        store, ends = self._access.operable(), monotonic() + seconds
        is_reschedule = any(each is not None for each in (delay, at, by, time_zone))
        new = self._new_due_time(delay, at, by, time_zone) if is_reschedule else None
        sampled: list[DelayedMessage] = []
        found = Matching(0, None)
        while True:
            if len(sampled) < sample:
                page = self.search(wanted, after=found.next_key, limit=sample - len(sampled))
                sampled += page.messages
                more = Matching.of(len(page.messages), page.next_key, map(unmarked, page.messages))
            else:
                with self._access.call("counting messages"):
                    more = store.count_matching(wanted, after=found.next_key, due_times=new is not None)
            found = found.and_then(more)
            if progress is not None:
                progress(found.count)
            if found.next_key is None or (at_most is not None and found.count >= at_most) or monotonic() > ends:
                return Preview(wanted=wanted, found=found, sample=sampled, new=new)

    def _new_due_time(
        self,
        delay: timedelta | float | None,
        at: datetime | None,
        by: timedelta | float | None,
        time_zone: str | None,
    ) -> datetime | Shift:
        """The new due time in UTC that `begin_reschedule` gives messages now, or the shift."""
        new = new_due_time(self._access.due_time, delay, at, by, time_zone)
        return new if isinstance(new, Shift) else waiting_until(new, "the new due time")

    def count_by_due_time(
        self, wanted: MessageFilter, bucket: timedelta, *, progress: CountListener | None = None
    ) -> Mapping[datetime, int]:
        """Count the messages that match by when they are due.

        Args:
            wanted: The filter.
            bucket: The length of time for which one number is given, in whole seconds.
            progress: Called with the number so far; an error that it raises ends the counting.

        Returns:
            The number of messages of each bucket that has some, by the bucket's start, UTC, in order.

        """
        store = self._access.operable()
        found: Counter[datetime] = Counter()
        after = None
        while True:
            with self._access.call("counting messages"):
                numbers, after = store.count_matching_by_due_time(wanted, bucket, after=after)
            found.update(numbers)
            if progress is not None:
                progress(found.total())
            if after is None:
                return dict(sorted(found.items()))

    # operations on many messages

    def begin_cancel(self, wanted: MessageFilter, *, operation_id: str | None = None) -> Operation:
        """Keep in the store that all messages that match are to be cancelled; `run` does it.

        Args:
            wanted: The filter.
            operation_id: An id that no operation has, for callers that may be interrupted; None: a new one.

        Returns:
            The operation, whose id `run` takes.

        """
        return self._begin(OperationKind.CANCEL, wanted, operation_id)

    def begin_reschedule(
        self,
        wanted: MessageFilter,
        *,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        by: timedelta | float | None = None,
        time_zone: str | None = None,
        operation_id: str | None = None,
    ) -> Operation:
        """Keep in the store that all messages that match get a new due time and fresh retries; `run` does it.

        Args:
            wanted: The filter.
            delay: The due time of all of them, as a timedelta or seconds from now; or else give `at` or `by`.
            at: Their due time as an aware datetime.
            by: The span by which the due time of each moves, a timedelta or seconds; negative: to an earlier time.
            time_zone: The time zone, such as `Europe/Berlin`, whose calendar days whole days of `by` are, also when
                clocks change. None: a day is 24 hours.
            operation_id: As for `begin_cancel`.

        Returns:
            The operation, whose id `run` takes.

        """
        new = self._new_due_time(delay, at, by, time_zone)
        if isinstance(new, Shift):
            return self._begin(OperationKind.RESCHEDULE, wanted, operation_id, shift=new)
        sends_now = reschedule_action(delay) is ChangeAction.SEND_NOW
        return self._begin(OperationKind.RESCHEDULE, wanted, operation_id, new, new if sends_now else None)

    def _begin(
        self,
        kind: OperationKind,
        wanted: MessageFilter,
        operation_id: str | None,
        due_time: datetime | None = None,
        began: datetime | None = None,
        shift: Shift | None = None,
    ) -> Operation:
        """Keep a new operation in the store, noted; it has changed nothing yet. `began` None: now."""
        store = self._access.operable()
        with self._access.call("beginning an operation"):
            operation = Operation(
                operation_id=operation_id or new_operation_id(),
                kind=kind,
                wanted=wanted,
                by=self.by,
                began=began or store.now(),
                due_time=due_time,
                shift=shift,
            )
            store.begin_operation(operation, change=self._access.actor.change(operation.action))
        return operation

    def run(self, operation_id: str, progress: OperationListener | None = None) -> Operation:
        """Take steps until the operation has ended, from where it was left; no message is changed twice.

        Messages that a dispatcher has claimed are left alone, and counted as held, as are messages whose due time a
        shift would move out of range. Killed at any point, `run` with the same id goes on. `Loads.cancel` says what
        differs for a load that is cancelled as a whole.

        Args:
            operation_id: The operation's id.
            progress: Called after each step with the operation; an error that it raises ends the run.

        Returns:
            The operation as it has ended; one that had ended before, as it is.

        Raises:
            ConfigurationError: There is no operation with this id.

        """
        access, store = self._access, self._access.operable()
        found = self.operation(operation_id)
        while found is not None and found.state is OperationState.RUNNING:
            change, before = access.actor.change(found.action), found.changed
            began = monotonic()
            with access.call("changing many messages"):
                found = store.advance_operation(operation_id, change=change)
            took = monotonic() - began
            if found is not None and progress is not None:
                progress(found)
            if found is not None and found.state is OperationState.RUNNING:
                pause = max(_PAUSE * took, (found.changed - before) / _FASTEST - took)
                sleep(_ONCE_MORE if found.after is None else min(pause, _LONGEST_PAUSE))
        if found is None:
            raise ConfigurationError(f"there is no operation {operation_id!r}; `delaystore operations list` shows them")
        if found.kind is OperationKind.RESCHEDULE and found.changed:
            access.wake_up(found.due_time)
        return found

    def cancel(self, wanted: MessageFilter, progress: OperationListener | None = None) -> Operation:
        """Cancel all messages that match: `begin_cancel` and `run`.

        Args:
            wanted: The filter.
            progress: As for `run`.

        Returns:
            The operation as it has ended.

        """
        return self.run(self.begin_cancel(wanted).operation_id, progress)

    def reschedule(
        self,
        wanted: MessageFilter,
        *,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        by: timedelta | float | None = None,
        time_zone: str | None = None,
        progress: OperationListener | None = None,
    ) -> Operation:
        """Reschedule all messages that match: `begin_reschedule` and `run`.

        Args:
            wanted: The filter.
            delay: As for `begin_reschedule`.
            at: As for `begin_reschedule`.
            by: As for `begin_reschedule`.
            time_zone: As for `begin_reschedule`.
            progress: As for `run`.

        Returns:
            The operation as it has ended.

        """
        begun = self.begin_reschedule(wanted, delay=delay, at=at, by=by, time_zone=time_zone)
        return self.run(begun.operation_id, progress)

    def abandon(self, operation_id: str) -> Operation | None:
        """End an operation that runs; its changes stay.

        Args:
            operation_id: The operation's id.

        Returns:
            The operation; one that had ended, as it is. None: there is no operation with this id.

        """
        store = self._access.operable()
        with self._access.call("abandoning an operation"):
            return store.end_operation(operation_id, change=self._access.actor.change(ChangeAction.ABANDON))

    def operation(self, operation_id: str) -> Operation | None:
        """Look up an operation.

        Args:
            operation_id: The operation's id.

        Returns:
            The operation; None: there is no operation with this id.

        """
        store = self._access.operable()
        with self._access.call("looking up an operation"):
            return store.operation(operation_id)

    def operations(self, limit: int = 20) -> Sequence[Operation]:
        """List the operations that were begun last.

        Args:
            limit: Maximum number of operations.

        Returns:
            The operations, the newest first.

        """
        store = self._access.operable()
        with self._access.call("listing operations"):
            return store.operations(limit)

    @property
    def loads(self) -> Loads:
        """The loads of the endpoint as units."""
        return Loads(self._access, self.begin_cancel, self.run)

    # one message

    def send_now(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Make the waiting message with that id or key due now, unless a dispatcher has it; it gets fresh retries."""
        return self._access.messages.send_now(message_id, key=key)

    def cancel_one(self, message_id: str | None = None, *, key: str | None = None) -> ManagementOutcome:
        """Delete a waiting message, as `DelayedDelivery.cancel`.

        Args:
            message_id: Its id; or else give `key`.
            key: Its key; or else give `message_id`.

        Returns:
            DONE, NOT_FOUND, or BEING_DISPATCHED: a dispatcher has claimed it.

        """
        return self._access.messages.cancel(message_id, key=key)

    def reschedule_one(
        self,
        message_id: str | None = None,
        *,
        key: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        by: timedelta | float | None = None,
        time_zone: str | None = None,
    ) -> ManagementOutcome:
        """Give a waiting message a new due time and fresh retries, as `DelayedDelivery.reschedule`.

        Args:
            message_id: Its id; or else give `key`.
            key: Its key; or else give `message_id`.
            delay: The new due time as a timedelta or seconds from now; or else give `at` or `by`.
            at: The new due time as an aware datetime.
            by: The span by which the due time moves, a timedelta or seconds; negative: to an earlier time.
            time_zone: The time zone, such as `Europe/Berlin`, whose calendar days whole days of `by` are, also when
                clocks change. None: a day is 24 hours.

        Returns:
            DONE, NOT_FOUND, or BEING_DISPATCHED: a dispatcher has claimed it.

        """
        return self._access.messages.reschedule(message_id, key=key, delay=delay, at=at, by=by, time_zone=time_zone)

    def do_all(self, requests: Sequence[MessageRequest], *, most_bytes: int = MOST_BYTES) -> Sequence[RequestResult]:
        """Do requests about single messages in one transaction, in order, and note each change by its asker.

        Args:
            requests: What to do, with which messages.
            most_bytes: After this number of bytes of bodies that were looked up, the rest is left undone.

        Returns:
            The results of the first of `requests`: of all, or at least of one.

        Raises:
            StoreError: The store fails; none of the requests was done. A store without transactions has done those
                before the failure.

        """
        return self._access.messages.do_all(requests, most_bytes)

    # destinations

    def pause(self, destination: str, *, until: datetime | None = None, progress: CountListener | None = None) -> int:
        """Have all dispatchers keep messages for a destination from now on, and park due messages.

        Args:
            destination: The destination.
            until: When it resumes automatically, an aware datetime, in place of an earlier pause's; None: never.
            progress: Called with the number of parked messages so far; an error that it raises ends the parking, not
                the pause: dispatchers go on with it.

        Returns:
            How many messages were parked.

        Raises:
            InvalidMessageError: `until` is past, or has no time zone.

        """
        check_destination(destination)
        store = self._access.operable()
        with self._access.call("pausing a destination"):
            now = store.now()
            check_pause_end(until, now)
            change = self._access.actor.change(ChangeAction.PAUSE)
            store.pause(destination, by=self.by, until=until, change=change)
        return self._access.in_steps("parking messages", lambda: store.park(now), progress)

    def resume(self, destination: str, *, progress: CountListener | None = None) -> int:
        """Let messages for a destination go again, also parked ones.

        Args:
            destination: The destination.
            progress: As for `pause`.

        Returns:
            How many parked messages there were; 0 also where it was not paused.

        """
        check_destination(destination)
        store = self._access.operable()
        with self._access.call("resuming a destination"):
            store.resume(destination, by=self.by, change=self._access.actor.change(ChangeAction.RESUME))
        return self._access.show_parked(store, progress)

    def limit_rate(self, destination: str, max_rate: float | None) -> None:
        """Limit how many messages go to a destination, from all dispatchers together.

        Args:
            destination: The destination.
            max_rate: Messages a second; None: any number.

        """
        check_destination(destination)
        store = self._access.operable()
        with self._access.call("limiting a destination"):
            change = self._access.actor.change(ChangeAction.LIMIT)
            store.limit_rate(destination, max_rate, by=self.by, change=change)

    def destinations(self) -> Sequence[Destination]:
        """The destinations that are paused, limited, or resuming, by name."""
        store = self._access.operable()
        with self._access.call("listing destinations"):
            return store.destinations()

    def backlog(self, most: int = 1_000) -> Mapping[str, int]:
        """Count the waiting messages by destination. Reads all waiting messages.

        Args:
            most: Maximum number of destinations.

        Returns:
            The numbers by destination, the largest first.

        """
        store = self._access.operable()
        with self._access.call("counting by destination"):
            return store.count_by_destination(most)

    # what could not be forwarded

    @property
    def errors(self) -> ErrorQueue:
        """The error queue: list, replay and discard its messages; raises ConfigurationError without a transport.

        It needs no operable store; where there is one, changes are noted in it.
        """
        if self._access.transport is None:
            raise ConfigurationError("the error queue needs a transport; give this endpoint one")
        return ErrorQueue(self._access.transport, self._access.settings.error_queue, note=self._note_if_possible)

    # how it is, and who changed what

    def note(self, action: str, about: str, count: int) -> None:
        """Note a change that was made elsewhere. If the store fails, that is logged, and not raised.

        Args:
            action: The change, in one word.
            about: The changed messages or destination, for people.
            count: To how many messages.

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
        """Count messages by their next attempt.

        Args:
            since: The first next attempt that counts, an aware datetime.
            until: Only attempts before it count, an aware datetime.
            bucket: The length of time, in whole seconds, for which one number is given.

        Returns:
            The number of messages of each bucket, by the bucket's beginning, as counted from 1970-01-01 UTC.

        """
        store = self._access.operable()
        with self._access.call("counting by time"):
            return store.count_between(since, until, bucket)

    def changes(self, limit: int = 100, before: datetime | None = None) -> Sequence[AuditEntry]:
        """List the last entries of the audit trail.

        Args:
            limit: Maximum number of entries.
            before: Only entries from before this aware datetime; None: all.

        Returns:
            The entries, the newest first.

        """
        store = self._access.operable()
        with self._access.call("listing changes"):
            return store.changes(limit, before)

    def history(self, wanted: HistoryFilter, *, after: Position | None = None, limit: int = 100) -> HistoryPage:
        """Find messages that have left the store: delivered, cancelled, expired, and so on.

        Args:
            wanted: Which ones.
            after: The `next_key` of the page before; None: from the newest.
            limit: The largest number of entries.

        Returns:
            A page of entries, the newest first. It may be short, or empty, although more match: go on behind its
            `next_key`, which is None at the end.

        """
        store = self._historic()
        with self._access.call("searching the history"):
            return store.history(wanted, after=after, limit=limit)

    def history_status(self) -> HistoryStatus:
        """Whether a history is kept, since when it is complete, and how large it is."""
        store = self._historic()
        with self._access.call("asking for the size of the history"):
            return store.history_status()

    def history_gaps(self, status: HistoryStatus) -> Sequence[str]:
        """Why a message that has left may have no entry, although a history is kept.

        Args:
            status: The state of the history.

        Returns:
            A clause with a remedy for each running dispatcher that makes no entries: it is of an earlier release, or
            its role may not read the setting. None, where this role may not read which dispatchers run.

        """
        store = self._access.operable()
        with self._access.call("listing dispatchers"), suppress(StorePermissionError):
            return history_gaps(status, store.dispatchers())
        return ()

    def history_of(
        self, message_id: str | None = None, *, key: str | None = None, limit: int = 100
    ) -> Sequence[HistoryEntry]:
        """Look up how messages of one id, or of one key, have left the store.

        Args:
            message_id: Their id; or else give `key`.
            key: Their key; or else give `message_id`.
            limit: The largest number of entries.

        Returns:
            The entries of the history, the newest first. None, where the store cannot keep one, or its tables are of an
            earlier release.

        """
        store = self._access.store
        if not isinstance(store, StoreWithHistory):
            return ()
        with self._access.call("looking up the history"), suppress(StoreSetupError):
            return store.history(HistoryFilter(message_id=message_id, key=key), limit=limit).entries
        return ()

    def life(self, message_id: str) -> MessageLife:
        """All that the store knows of one message: whether it waits, who changed it, and how it left the store.

        Args:
            message_id: The message.

        Returns:
            The life, without entries where the store has none.

        """
        check_message_id(message_id)
        store = self._access.operable()
        with self._access.call("looking up a message's life"):
            message, changes = store.get(message_id), store.changes_of(message_id)
        entries = self.history_of(message_id)  # after the look-up: a message that leaves meanwhile is in one of them
        return MessageLife(
            message_id=message_id, sent=made_at(message_id), message=message, changes=changes, entries=entries
        )

    def _historic(self) -> StoreWithHistory:
        store = self._access.operable()
        if not isinstance(store, StoreWithHistory):
            raise ConfigurationError(
                f"{type(store).__name__} keeps no history; use another store, such as SqlDelayedMessageStore"
            )
        return store

    def audit_kept(self) -> AuditKept:
        """Whose changes are noted, and for how long they are kept, as the dispatchers that live report it."""
        store = self._access.operable()
        with self._access.call("listing dispatchers"):
            return AuditKept.of(store.dispatchers())

    def overview(self, timeout: float = 5.0) -> Overview:
        """Report how the endpoint is doing; raises nothing.

        Args:
            timeout: Seconds, about, within which store and transport have to answer.

        Returns:
            The overview; facts that are not known in time are None.

        """
        return self._inquiry.overview(self._access, timeout)

    def _note_if_possible(self, action: str, about: str, count: int) -> None:
        with suppress(ConfigurationError):
            self._access.note(action, about, count)
