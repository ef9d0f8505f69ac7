"""`Schedules`: creating, changing and looking up recurring schedules."""

import logging
from builtins import list as List  # noqa: N812 - `list` is a method here
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Any, Final, Self, Unpack

from delaystore.errors import InvalidScheduleError, StoreUnavailableError
from delaystore.message import EARLIEST_DUE_TIME, DelayedMessage, utc
from delaystore.schedules.definition import Definition, Schedule, check_name, named_in_errors
from delaystore.schedules.editing import Acting, Editing, ScheduleChanges, anchored_as, check_together, unknown
from delaystore.schedules.making import store_new
from delaystore.stores.documents import instant
from delaystore.stores.records import ChangeAction
from delaystore.stores.schedules import (
    OCCURRENCES,
    ScheduleRows,
    StoredSchedule,
    occurrence_id,
)
from delaystore.text import counted, time_text

log = logging.getLogger("delaystore.schedules")
MOST_BACKFILLED: Final = 10_000
"""The most occurrences of one call of `backfill`."""
MOST_SHOWN: Final = 10_000
"""The most times of one call of `upcoming`."""
_ATTEMPTS: Final = 3
_SECOND: Final = timedelta(seconds=1)
_TRIGGERED: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
"""The end of the id of a triggered occurrence: the time of the call."""


class PutResult(StrEnum):
    """The result of `put`."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    """The schedule was the same already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """A schedule, and the numbers of its occurrences.

    Attributes:
        schedule: The schedule.
        paused: Whether it makes no occurrences.
        next_time: The nominal time of the next occurrence; None: it is paused, or there is none any more.
        last_time: The nominal time of the last occurrence that was due; None: none was.
        made: Occurrences that were made, due or not.
        missed: Occurrences that were not made because no dispatcher ran at their time.
        overlapped: Occurrences that were left out because an earlier one was still waiting.
        skipped: Occurrences that were skipped by `skip`.
        remaining: How many occurrences are still to be made; None: there is no limit.
        version: How often its definition was written, from 1.
        changed: When it was changed last.
        changed_by: By whom.

    """

    schedule: Schedule
    paused: bool
    next_time: datetime | None
    last_time: datetime | None
    made: int
    missed: int
    overlapped: int
    skipped: int
    remaining: int | None
    version: int
    changed: datetime
    changed_by: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.schedule.name

    @property
    def last_id(self) -> str | None:
        """The message_id of the last occurrence that was due; None: none was."""
        return None if self.last_time is None else occurrence_id(self.name, self.last_time)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON: the members of `Schedule.as_document`, and those of this record."""
        counts = ("paused", "made", "missed", "overlapped", "skipped", "remaining", "version", "changed_by")
        times = {name: instant(getattr(self, name)) for name in ("next_time", "last_time", "changed")}
        return {**self.schedule.as_document(), **{name: getattr(self, name) for name in counts}, **times}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleAccess:
    """The parts of a delivery that `Schedules` uses.

    Attributes:
        opened: Opens a transaction, or takes part in the caller's.
        check: Raises InvalidMessageError for a message that cannot be carried.
        wake_up: Called after a change: occurrences may be due now.
        actor: Who makes changes.

    """

    opened: Callable[[str], AbstractContextManager[ScheduleRows]]
    check: Callable[[DelayedMessage], None]
    wake_up: Callable[[], None]
    actor: Acting


class Schedules:
    """The recurring schedules of an endpoint: `DelayedDelivery.schedules`, or those of an enlisted delivery.

    A schedule makes ordinary messages, its occurrences, up to two minutes ahead of their time. Any dispatcher of the
    endpoint makes them. The id of an occurrence is `schedule/NAME/UTC-TIME`, of its nominal time. A change takes effect
    for all occurrences that no dispatcher has claimed: in one transaction, these are deleted and made again.

    All methods raise StoreError if the store fails, and ConfigurationError if it keeps no schedules.
    """

    def __init__(self, access: ScheduleAccess) -> None:
        self._access = access

    def acting(self, actor: Acting) -> Self:
        """The same in another name, or by another way."""
        return type(self)(replace(self._access, actor=actor))

    def put(self, name: str, **definition: Unpack[Definition]) -> PutResult:
        """Create a schedule, or change it. If it is the same already, nothing is written.

        An interval counts from `starts`, or from when the schedule was created: a change keeps that. A paused schedule
        stays paused.

        Args:
            name: Its name: up to 200 bytes without line breaks.
            **definition: The arguments of `Schedule.of`: `destination`; `body` or `json`; `cron` or `every`; `zone`,
                and more.

        Returns:
            Whether it was created, changed, or the same already.

        Raises:
            InvalidScheduleError: The schedule cannot be: the message says why, and what to do.

        Example:
            ```python
            delivery.schedules.put("reports", cron="0 9 * * 1", zone="Europe/Berlin", destination="reports", body=b"")
            delivery.schedules.put("ping", every=timedelta(minutes=5), destination="probes", body=b"", jitter=30)
            ```

        """
        return self.put_schedule(Schedule.of(name, **definition))

    def put_schedule(self, schedule: Schedule, *, version: int | None = None, dry_run: bool = False) -> PutResult:
        """As `put`, with a schedule that `Schedule.of` or `Schedule.of_document` has made.

        Args:
            schedule: The schedule.
            version: Change it only if it has this version, 0: if there is none of its name. None: in any case.
            dry_run: Change nothing, and return the result of a put without it.

        """
        changes = self._put([schedule], None, dry_run=dry_run, version=version)
        if changes.created:
            return PutResult.CREATED
        return PutResult.CHANGED if changes.changed else PutResult.UNCHANGED

    def put_all(self, found: Iterable[Schedule], *, prefix: str, dry_run: bool = False) -> ScheduleChanges:
        """Make the schedules below a prefix those of `found`, in one transaction: create, change and delete.

        Schedules with other names are left alone.

        Args:
            found: Schedules whose names begin with `prefix`.
            prefix: The beginning of their names, such as `invoices/`.
            dry_run: Change nothing.

        Returns:
            The names of schedules that were changed, or with `dry_run` would be changed.

        Raises:
            InvalidScheduleError: A name does not begin with `prefix`, or occurs twice, or `prefix` is empty.

        Example:
            ```python
            tenants = [Schedule.of(f"invoices/{name}", cron="0 9 1 * *", destination="billing", body=b"")
                       for name in ("acme", "initech")]
            delivery.schedules.put_all(tenants, prefix="invoices/")
            ```

        """
        wanted = list(found)
        check_together(wanted, prefix)
        return self._put(wanted, prefix, dry_run=dry_run)

    def check(self, wanted: Iterable[Schedule]) -> None:
        """Raise InvalidScheduleError for a schedule whose occurrences the store or the transport cannot carry."""
        for schedule in wanted:
            with named_in_errors(schedule.name):
                self._access.check(schedule.sample())

    def pause(self, name: str) -> bool:
        """Make no more occurrences of a schedule. Occurrences that are not due yet are deleted.

        Occurrences that are due already, and wait nevertheless, are delivered.

        Args:
            name: The schedule.

        Returns:
            False: it was paused already.

        Raises:
            UnknownScheduleError: There is none of that name.

        """
        with self._changing("pausing a schedule") as edit:
            row = edit.locked(name)
            if row.paused:
                return False
            edit.write(replace(edit.without_future(row), paused=True, look_at=None))
            edit.note(ChangeAction.PAUSE, name)
        return True

    def resume(self, name: str) -> bool:
        """Make occurrences of a paused schedule again, from the next one on.

        Occurrences of the time in which it was paused are not made.

        Args:
            name: The schedule.

        Returns:
            False: it was not paused.

        Raises:
            UnknownScheduleError: There is none of that name.

        """
        with self._changing("resuming a schedule") as edit:
            row = edit.locked(name)
            if not row.paused:
                return False
            next_due = None if row.progress.remaining == 0 else edit.next_due(row, Schedule.of_row(row))
            edit.write(replace(row, paused=False, next_due=next_due, look_at=None if next_due is None else edit.now))
            edit.note(ChangeAction.RESUME, name)
        return True

    def skip(self, name: str, at: datetime) -> bool:
        """Leave out one occurrence.

        Args:
            name: The schedule.
            at: The nominal time of the occurrence, an aware datetime in the future.

        Returns:
            False: a dispatcher has claimed the occurrence, so that it may arrive.

        Raises:
            UnknownScheduleError: There is no schedule of that name.
            InvalidScheduleError: It has no occurrence at that time, or that is past.
            InvalidMessageError: `at` has no time zone.

        """
        at = utc(at, "at")
        with self._changing("skipping an occurrence") as edit:
            row, now = edit.locked(name), edit.now
            schedule, progress = Schedule.of_row(row), row.progress.at(now)
            if at <= now - schedule.jitter or schedule.after(at - _SECOND) != at or schedule.due_time(at) <= now:
                following = schedule.after(max(now, at))
                hint = "it has no later one" if following is None else f"the next one is at {time_text(following)}"
                raise InvalidScheduleError(f"the schedule {name!r} has no future occurrence at {time_text(at)}; {hint}")
            if at in progress.skips:
                return True
            is_made = at in progress.ahead or at <= now
            if is_made and not edit.remove([occurrence_id(name, at)]):
                return False
            row = edit.undone(row, [at] if is_made else [])
            row = row.with_progress(skipped=progress.skipped + 1, skips=tuple(sorted({*progress.skips, at})))
            if is_made and row.next_due is None:  # the last run was made; another occurrence may have it now
                next_due = schedule.after(max([now, at, *row.progress.ahead]))
                row = replace(row, next_due=next_due, look_at=None if row.paused or next_due is None else now)
            edit.write(row)
            edit.note(ChangeAction.SKIP, name, detail=f" at {time_text(at)}")
        return True

    def trigger(self, name: str) -> str:
        """Make one occurrence now, besides those of the rule; also of a paused schedule.

        Args:
            name: The schedule.

        Returns:
            The message_id of the occurrence.

        Raises:
            UnknownScheduleError: There is none of that name.

        """
        with self._changing("triggering a schedule") as edit:
            schedule, now = Schedule.of_row(edit.locked(name)), edit.now
            while edit.rows.waiting_of([message_id := f"{OCCURRENCES}{name}/{now.strftime(_TRIGGERED)}"]):
                now += timedelta(microseconds=1)
            message = schedule.message(now, schedule.after(now), due_time=edit.now, message_id=message_id)
            edit.rows.transaction.store_many([message])
            edit.note(ChangeAction.TRIGGER, name)
        return message_id

    def backfill(self, name: str, since: datetime, until: datetime) -> int:
        """Make the occurrences of a past time, due now. Their header `delaystore.backfilled` is true.

        Occurrences that still wait are left out. Occurrences that were delivered are delivered again, with the same
        message_id.

        Args:
            name: The schedule.
            since: The first nominal time, an aware datetime.
            until: The last nominal time, an aware datetime that is not in the future.

        Returns:
            How many occurrences were made.

        Raises:
            UnknownScheduleError: There is no schedule of that name.
            InvalidScheduleError: The time is not past, or has more than 10,000 occurrences.
            InvalidMessageError: `since` or `until` has no time zone.

        """
        since, until = utc(since, "since"), utc(until, "until")
        if until < since:
            raise InvalidScheduleError("until must not be before since")
        with self._changing("backfilling a schedule") as edit:
            schedule, rows = Schedule.of_row(edit.locked(name)), edit.rows
            if until > edit.now:
                raise InvalidScheduleError(f"until {time_text(until)} is in the future; backfill is for past times")
            begin = max(since, EARLIEST_DUE_TIME) - timedelta(microseconds=1)
            times = list(islice(schedule.between(begin, until), MOST_BACKFILLED + 1))
            if len(times) > MOST_BACKFILLED:
                raise InvalidScheduleError(
                    f"the schedule {name!r} has more than {counted(MOST_BACKFILLED, 'occurrence')} in that time; "
                    "backfill a shorter time first"
                )
            following = [*times[1:], schedule.after(until)]
            made = store_new(
                rows,
                [
                    schedule.message(nominal, later, due_time=edit.now, backfilled=True)
                    for nominal, later in zip(times, following, strict=False)
                ],
            )
            span = f" from {time_text(since)} to {time_text(until)}: {counted(len(made), 'occurrence')}"
            edit.note(ChangeAction.BACKFILL, name, detail=span)
        return len(made)

    def delete(self, name: str) -> bool:
        """Delete a schedule, and its waiting occurrences that no dispatcher has claimed.

        Args:
            name: The schedule.

        Returns:
            False: there is none of that name.

        """
        with self._changing("deleting a schedule") as edit:
            found = edit.lock([check_name(name)])
            edit.delete(list(found.values()))
        return bool(found)

    def get(self, name: str) -> ScheduleState | None:
        """Look up a schedule; None: there is none of that name."""
        check_name(name)
        with self._access.opened("looking up a schedule") as rows:
            row = _row(rows, name)
            return None if row is None else _state(row, rows.transaction.now())

    def list(self, prefix: str = "", *, after: str | None = None, limit: int = 100) -> List[ScheduleState]:
        """List schedules by name. A row that this release cannot read is logged, and left out.

        Args:
            prefix: The beginning of their names.
            after: Only names behind this one, such as the last one of the page before.
            limit: Maximum number of schedules.

        Raises:
            InvalidScheduleError: `after` cannot be a name.

        """
        if after is not None:
            check_name(after)
        if not prefix.isprintable():  # no name begins so, and PostgreSQL refuses a NUL
            return []
        with self._access.opened("listing schedules") as rows:
            now = rows.transaction.now()
            found: List[ScheduleState] = []
            while (wanted := limit - len(found)) > 0:
                page = rows.list(prefix, after=after, limit=wanted)
                found += _states(page, now)
                if len(page) < wanted:
                    break
                after = page[-1].name
            return found

    def upcoming(self, name: str, count: int = 5) -> Sequence[datetime]:
        """The nominal times of the next occurrences, without skipped ones.

        Args:
            name: The schedule; a paused one has the occurrences that it would have after a resume.
            count: Maximum number of times, at most 10,000.

        Raises:
            UnknownScheduleError: There is none of that name.

        """
        check_name(name)
        with self._access.opened("looking up a schedule") as rows:
            row = _row(rows, name)
            if row is None:
                raise unknown(name)
            return _upcoming(row, Schedule.of_row(row), rows.transaction.now(), count)

    def preview(self, schedule: Schedule, count: int = 5) -> Sequence[datetime]:
        """The next nominal times that a schedule would have if you put it now. Nothing is written."""
        with self._access.opened("looking up a schedule") as rows:
            row, now = _row(rows, schedule.name), rows.transaction.now()
        count = count if schedule.max_runs is None else min(count, schedule.max_runs)
        return next_times(schedule.anchored(now) if row is None else anchored_as(schedule, row, now), now, count)

    @contextmanager
    def _changing(self, purpose: str) -> Iterator[Editing]:
        with self._access.opened(purpose) as rows:
            yield Editing(rows, self._access.actor)
        self._access.wake_up()

    def _put(
        self, wanted: Sequence[Schedule], prefix: str | None, *, dry_run: bool, version: int | None = None
    ) -> ScheduleChanges:
        self.check(wanted)
        with self._changing("putting a schedule") as edit:
            for _ in range(_ATTEMPTS):
                changes = edit.put(wanted, prefix, dry_run=dry_run, version=version)
                if changes is not None:
                    return changes
        raise StoreUnavailableError("other transactions add the same schedules; try again")


def next_times(schedule: Schedule, after: datetime, count: int, skips: Collection[datetime] = ()) -> Sequence[datetime]:
    """The next nominal times of a schedule, without `skips`."""
    found: List[datetime] = []
    nominal = schedule.after(after)
    while nominal is not None and len(found) < min(count, MOST_SHOWN):
        if nominal not in skips:
            found.append(nominal)
        nominal = schedule.after(nominal)
    return found


def _row(rows: ScheduleRows, name: str) -> StoredSchedule | None:
    found = rows.list(name, limit=1)
    return found[0] if found and found[0].name == name else None


def _upcoming(row: StoredSchedule, schedule: Schedule, now: datetime, count: int) -> Sequence[datetime]:
    """The nominal times of occurrences that are not due yet, made or not."""
    progress = row.progress.at(now)
    if progress.remaining is not None:
        count = min(count, progress.remaining + len(progress.ahead))
    return next_times(schedule, now, count, progress.skips)


def _states(rows: Sequence[StoredSchedule], now: datetime) -> Iterator[ScheduleState]:
    for row in rows:
        try:
            yield _state(row, now)
        except InvalidScheduleError as error:
            log.error("the schedule %r is not listed: %s", row.name, error)


def _state(row: StoredSchedule, now: datetime) -> ScheduleState:
    progress, schedule = row.progress.at(now), Schedule.of_row(row)
    return ScheduleState(
        schedule=schedule,
        paused=row.paused,
        next_time=None if row.paused else next(iter(_upcoming(row, schedule, now, 1)), None),
        last_time=progress.last,
        made=progress.made,
        missed=progress.missed,
        overlapped=progress.overlapped,
        skipped=progress.skipped,
        remaining=progress.remaining,
        version=row.version,
        changed=row.changed,
        changed_by=row.changed_by,
    )
