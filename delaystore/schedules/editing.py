"""Changes of the rows of schedules, in one transaction with their waiting occurrences."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from delaystore.errors import InvalidScheduleError, UnknownScheduleError
from delaystore.message import DelayedMessage, unmarked
from delaystore.schedules.definition import BACKFILLED, Schedule, check_name
from delaystore.schedules.making import advance, made_lately, occurrences, store_new
from delaystore.schedules.rules import zone_fingerprint
from delaystore.stores.documents import plain
from delaystore.stores.records import Change, ChangeAction
from delaystore.stores.schedules import (
    OCCURRENCES,
    ScheduleProgress,
    ScheduleRows,
    StoredSchedule,
    nominal_time,
    occurrence_id,
)

_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)
_FEW: Final = 20
"""Occurrences of more schedules than this are read together, all below their prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChanges:
    """The result of `put_all`.

    Attributes:
        created: The names of new schedules.
        changed: The names of schedules that were different.
        deleted: The names of schedules that were not among the given ones.
        unchanged: How many were the same already.

    """

    created: Sequence[str] = ()
    changed: Sequence[str] = ()
    deleted: Sequence[str] = ()
    unchanged: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        names = {"created": self.created, "changed": self.changed, "deleted": self.deleted}
        return {**{kind: list(each) for kind, each in names.items()}, "unchanged": self.unchanged}


class Acting(Protocol):
    """Who changes schedules, and which of these changes are noted; see `delaystore.operations.changes.Actor`."""

    @property
    def by(self) -> str:
        """Their name."""
        ...

    def change(self, action: ChangeAction) -> Change | None:
        """The audit entry of a change; None: nothing is noted."""
        ...


class Editing:
    """Changes of schedules in the transaction of `rows`.

    Attributes:
        rows: The rows.
        now: The store's clock, as it was when rows were locked.

    """

    now: datetime

    def __init__(self, rows: ScheduleRows, actor: Acting) -> None:
        self.rows, self._actor = rows, actor
        noted = actor.change(ChangeAction.CANCEL)
        self._noted_by = None if noted is None else noted.by
        """Who removes occurrences, for the history; None: changes of this way are not noted."""

    def lock(self, names: Collection[str]) -> Mapping[str, StoredSchedule]:
        """Lock the rows of these names, then read the clock: a dispatcher may have had them until now."""
        rows = self.rows.lock(names)
        self.now = self.rows.transaction.now()
        return rows

    def locked(self, name: str) -> StoredSchedule:
        """Lock the row of a schedule, after its missed occurrences are made. Raises UnknownScheduleError."""
        row = self.lock([check_name(name)]).get(name)
        if row is None:
            raise unknown(name)
        return self._caught_up([row])[name]

    def put(
        self, wanted: Sequence[Schedule], prefix: str | None, *, dry_run: bool, version: int | None = None
    ) -> ScheduleChanges | None:
        """Create and change schedules; delete others below a prefix, if one is given.

        Returns:
            The changes; None: another transaction has added one of the schedules meanwhile, and nothing is changed.

        """
        below = () if prefix is None else self.rows.names(prefix)
        known = self.lock({*below, *(each.name for each in wanted)})
        for name in (each.name for each in wanted if version is not None):
            if version != (known[name].version if name in known else 0):
                raise InvalidScheduleError(
                    f"the schedule {name!r} exists already, or another user has changed or deleted it meanwhile; "
                    "nothing was changed, look at it again"
                )
        new = [each.anchored(self.now) for each in wanted if each.name not in known]
        edited = [anchored_as(each, known[each.name], self.now) for each in wanted if each.name in known]
        changed = [each for each in edited if not _is_same(each, known[each.name])]
        deleted = sorted(known.keys() - {each.name for each in wanted})
        changes = ScheduleChanges(
            created=[each.name for each in new],
            changed=[each.name for each in changed],
            deleted=deleted,
            unchanged=len(edited) - len(changed),
        )
        if dry_run:
            return changes
        added, messages = self._made([self._row(each, each.after(self.now)) for each in new])
        if not self.rows.add(added):
            return None
        store_new(self.rows, messages)
        former = self._caught_up([known[each.name] for each in changed])
        self._write(self._rewritten(former, changed, prefix))
        self.note(ChangeAction.PUT, *changes.created, *changes.changed)
        self.delete([known[name] for name in deleted], prefix)
        return changes

    def delete(self, rows: Sequence[StoredSchedule], prefix: str | None = None) -> None:
        """Delete locked rows with their waiting occurrences. `prefix`: of all their names, if there are several."""
        self.remove([message_id for ids in self._waiting(rows, prefix).values() for message_id in ids])
        names = [row.name for row in rows]
        self.rows.delete(names)
        self.note(ChangeAction.DELETE, *names)

    def write(self, row: StoredSchedule) -> None:
        """Write a locked row, and make its next occurrences if a dispatcher is to look at it now."""
        self._write([replace(row, changed=self.now, changed_by=self._actor.by)])

    def without_future(self, row: StoredSchedule) -> StoredSchedule:
        """The row without its occurrences that are not due yet: they are deleted unless a dispatcher has claimed one.

        Occurrences that are claimed, or have left the store ahead of their time, count as made.
        """
        ids = self._waiting([row])[row.name]
        due = {each.message_id: unmarked(each) for each in self.rows.messages(list(ids)).values()}
        future = [each for each, nominal in ids.items() if max(nominal, due.get(each, nominal)) > self.now]
        return self.undone(row, [ids[each] for each in self.remove(future)])

    def next_due(self, row: StoredSchedule, schedule: Schedule) -> datetime | None:
        """The next nominal time by the rule of `schedule`, after the last one that the row has made.

        If the clock has stepped back, occurrences of the present time may be delivered already. Behind a day the clock
        was evidently wrong before.
        """
        last = row.progress.last
        if last is not None and self.now < last < self.now + _DAY:
            return schedule.after(last)
        return schedule.after(self.now)

    def remove(self, message_ids: Sequence[str]) -> Collection[str]:
        """Delete occurrences that wait unclaimed; returns their ids."""
        return self.rows.remove_occurrences(message_ids, self._noted_by)

    def note(self, action: ChangeAction, *names: str, detail: str = "") -> None:
        """Note a change of schedules, if changes by this way are noted. `detail`: more words, after a space."""
        change = self._actor.change(action)
        if change is not None and names:
            self.rows.transaction.note_changes([change.of_schedule(self.now, name, detail) for name in names])

    def _caught_up(self, known: Sequence[StoredSchedule]) -> Mapping[str, StoredSchedule]:
        """Locked rows by name, after missed occurrences of their present definition are made, and written."""
        done = {each.name: each for each in known}
        late = [each for each in known if each.look_at and each.next_due and each.next_due <= self.now]
        while late:
            advanced, _ = advance(self.rows, late, self.now)
            done |= {each.name: each for each in advanced}
            late = late[len(advanced) :]
        return done

    def _waiting(
        self, rows: Sequence[StoredSchedule], prefix: str | None = None
    ) -> Mapping[str, Mapping[str, datetime]]:
        """By the name of a row, the nominal times of its waiting occurrences by id; some may be gone."""
        found = {row.name: {occurrence_id(row.name, each): each for each in row.progress.ahead} for row in rows}
        prefixes = [prefix] if prefix is not None and len(rows) > _FEW else [f"{row.name}/" for row in rows]
        for message_id in (each for one in prefixes for each in self.rows.occurrences(one)):
            name = message_id.removeprefix(OCCURRENCES).rpartition("/")[0]
            nominal = nominal_time(message_id, name)
            if nominal is not None and name in found:
                found[name][message_id] = nominal
        if self.rows.reads_older:
            for row in rows:
                found[row.name] |= {occurrence_id(row.name, each): each for each in made_lately(row, self.now)}
        return found

    def undone(self, row: StoredSchedule, removed: Collection[datetime]) -> StoredSchedule:
        """The row as if it had not made the occurrences of these nominal times."""
        progress = row.progress.at(self.now)
        progress = replace(
            progress,
            ahead=tuple(each for each in progress.ahead if each not in removed),
            made=progress.made - len(removed),
            remaining=None if progress.remaining is None else progress.remaining + len(removed),
        )
        return replace(row, progress=progress)

    def _made(self, rows: Sequence[StoredSchedule]) -> tuple[Sequence[StoredSchedule], Sequence[DelayedMessage]]:
        """Make the next occurrences of rows that are to be looked at now; returns all rows after that, and these."""
        advanced, messages = occurrences(self.rows, [each for each in rows if each.look_at == self.now], self.now)
        made = {each.name: each for each in advanced}
        return [made.get(each.name, each) for each in rows], messages

    def _write(self, rows: Sequence[StoredSchedule]) -> None:
        """Write locked rows, and make the next occurrences of rows that are to be looked at now."""
        rows, messages = self._made(rows)
        self.rows.write(rows)
        store_new(self.rows, messages)

    def _rewritten(
        self, former: Mapping[str, StoredSchedule], changed: Sequence[Schedule], prefix: str | None
    ) -> Sequence[StoredSchedule]:
        """The rows with other definitions.

        Their waiting occurrences are deleted. Occurrences whose nominal time has passed are made again with the new
        content, due at the same time as before; the others if they are occurrences of the new rule.
        """
        waiting = self._waiting([former[each.name] for each in changed], prefix)
        passed = [each for ids in waiting.values() for each, nominal in ids.items() if nominal <= self.now]
        old = self.rows.messages(passed)
        removed = set(self.remove([each for ids in waiting.values() for each in ids]))
        rows, again = [], []
        for schedule in changed:
            times = waiting[schedule.name]
            gone = {each: nominal for each, nominal in times.items() if each in removed}
            row = self.undone(former[schedule.name], [each for each in gone.values() if each > self.now])
            row = self._defined(row, schedule)
            rows.append(row)
            past = sorted((nominal, each) for each, nominal in gone.items() if nominal <= self.now)
            following = [*(nominal for nominal, _ in past[1:]), row.next_due]
            again += [
                schedule.message(
                    nominal,
                    later,
                    due_time=unmarked(old[each]) if each in old else None,
                    backfilled=each in old and old[each].headers.get(BACKFILLED) is True,
                )
                for (nominal, each), later in zip(past, following, strict=False)
            ]
        store_new(self.rows, again)
        return rows

    def _defined(self, row: StoredSchedule, schedule: Schedule) -> StoredSchedule:
        """The row with another definition, to be looked at now."""
        progress = row.progress
        remaining = progress.remaining
        if schedule.max_runs != row.definition.get("max_runs"):
            remaining = None if schedule.max_runs is None else max(0, schedule.max_runs - progress.made)
        next_due = None if remaining == 0 else self.next_due(row, schedule)
        skips = tuple(each for each in progress.skips if schedule.after(each - _SECOND) == each)
        return replace(
            self._row(schedule, next_due),
            paused=row.paused,
            version=row.version + 1,
            progress=replace(progress, remaining=remaining, skips=skips),
            look_at=None if next_due is None or row.paused else self.now,
        )

    def _row(self, schedule: Schedule, next_due: datetime | None) -> StoredSchedule:
        """The row of a new schedule, which has made nothing yet. It is to be looked at now."""
        return StoredSchedule(
            name=schedule.name,
            destination=schedule.destination,
            body=schedule.body,
            headers=schedule.headers,
            properties=schedule.properties,
            definition=schedule.definition(),
            zone=schedule.rule.zone,
            zone_rules=zone_fingerprint(schedule.rule.zone),
            next_due=next_due,
            look_at=None if next_due is None else self.now,
            progress=ScheduleProgress(remaining=schedule.max_runs),
            changed=self.now,
            changed_by=self._actor.by,
        )


def check_together(wanted: Sequence[Schedule], prefix: str) -> None:
    """Raise InvalidScheduleError unless `put_all` can make the schedules below `prefix` these."""
    if not isinstance(prefix, str) or not prefix or not prefix.isprintable():
        raise InvalidScheduleError("put_all needs a prefix, below which other schedules are deleted; give one")
    known: set[str] = set()
    for schedule in wanted:
        if not schedule.name.startswith(prefix):
            raise InvalidScheduleError(
                f"the schedule {schedule.name!r} does not begin with the prefix {prefix!r}; nothing was changed"
            )
        if schedule.name in known:
            raise InvalidScheduleError(f"the schedule {schedule.name!r} occurs twice; nothing was changed")
        known.add(schedule.name)


def unknown(name: str) -> UnknownScheduleError:
    """The error for a schedule that there is not."""
    return UnknownScheduleError(f"there is no schedule {name!r:.80}; `delaystore schedules list` shows them")


def anchored_as(schedule: Schedule, row: StoredSchedule, now: datetime) -> Schedule:
    """`schedule`, whose interval counts from the beginning that the row has, or from `now`, if it names none."""
    try:
        known = Schedule.of_row(row).starts
    except InvalidScheduleError:
        known = None
    return schedule.anchored(known or now)


def _is_same(schedule: Schedule, row: StoredSchedule) -> bool:
    ours, theirs = ((of.destination, of.body, dict(of.headers), dict(of.properties)) for of in (schedule, row))
    if schedule.definition() != row.definition or ours != theirs:
        return False
    first, second = (json.dumps([plain(each) for each in of[2:]], sort_keys=True) for of in (ours, theirs))
    return first == second  # Python takes 1 and True for equal
