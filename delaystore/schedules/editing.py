"""Changes of the rows of schedules, in one transaction with their waiting occurrences."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol

from delaystore.errors import InvalidScheduleError, UnknownScheduleError
from delaystore.schedules.definition import Schedule, check_name
from delaystore.schedules.making import occurrences, store_new
from delaystore.schedules.rules import zone_fingerprint
from delaystore.stores.documents import plain
from delaystore.stores.records import Change, ChangeAction
from delaystore.stores.schedules import (
    ScheduleProgress,
    ScheduleRows,
    StoredSchedule,
    nominal_time,
    occurrence_id,
)

_PAGE: Final = 1_000


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
        now: The store's clock.

    """

    def __init__(self, rows: ScheduleRows, actor: Acting) -> None:
        self.rows, self.now, self._actor = rows, rows.transaction.now(), actor
        noted = actor.change(ChangeAction.CANCEL)
        self._noted_by = None if noted is None else noted.by
        """Who removes occurrences, for the history; None: changes of this way are not noted."""

    def locked(self, name: str) -> StoredSchedule:
        """Lock the row of a schedule. Raises UnknownScheduleError."""
        row = self.rows.lock([check_name(name)]).get(name)
        if row is None:
            raise unknown(name)
        return row

    def put(self, wanted: Sequence[Schedule], prefix: str | None, *, dry_run: bool) -> ScheduleChanges | None:
        """Create and change schedules; delete others below a prefix, if one is given.

        Returns:
            The changes; None: another transaction has added one of the schedules meanwhile, and nothing is changed.

        """
        below = () if prefix is None else _names(self.rows, prefix)
        known = self.rows.lock({*below, *(each.name for each in wanted)})
        new = [each.anchored(self.now) for each in wanted if each.name not in known]
        edited = [_anchored_as(each, known[each.name]) for each in wanted if each.name in known]
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
        added = [self._row(each) for each in new]
        if not self.rows.add(added):
            return None
        former = self.caught_up([known[each.name] for each in changed])
        rewritten = [self._rewritten(former[each.name], each) for each in changed]
        self.rows.write(rewritten)
        self._make([*added, *rewritten])
        self.note(ChangeAction.PUT, *changes.created, *changes.changed)
        self.delete(deleted)
        return changes

    def delete(self, names: Collection[str]) -> None:
        """Delete locked rows with their waiting occurrences."""
        for name in names:
            self.remove(self.rows.occurrences(name))
        self.rows.delete(names)
        self.note(ChangeAction.DELETE, *names)

    def write(self, row: StoredSchedule) -> None:
        """Write a locked row, and make its next occurrences if a dispatcher is to look at it now."""
        self.rows.write([replace(row, changed=self.now, changed_by=self._actor.by)])
        self._make([row] if row.look_at == self.now else [])

    def without_occurrences(
        self, row: StoredSchedule, *, due: bool = True
    ) -> tuple[StoredSchedule, Sequence[datetime]]:
        """Delete the row's waiting occurrences that no dispatcher has claimed.

        Args:
            row: The row, locked.
            due: Delete also occurrences that are due already.

        Returns:
            The row, which may make the deleted ones again if they are not due yet; and the nominal times of all deleted
            ones. Occurrences that are claimed, or have left the store ahead of their time, count as made.

        """
        progress = row.progress.at(self.now)
        ids = {occurrence_id(row.name, each): each for each in progress.ahead}
        for message_id in self.rows.occurrences(row.name):
            nominal = nominal_time(message_id, row.name)
            if nominal is not None and (due or nominal > self.now):
                ids[message_id] = nominal
        removed = {ids[each] for each in self.remove(list(ids))}
        undone = sum(each > self.now for each in removed)
        progress = replace(
            progress,
            ahead=tuple(each for each in progress.ahead if each not in removed),
            made=progress.made - undone,
            remaining=None if progress.remaining is None else progress.remaining + undone,
        )
        return replace(row, progress=progress), sorted(removed)

    def remove(self, message_ids: Sequence[str]) -> Collection[str]:
        """Delete occurrences that wait unclaimed; returns their ids."""
        return self.rows.remove_occurrences(message_ids, self._noted_by)

    def note(self, action: ChangeAction, *names: str, detail: str = "") -> None:
        """Note a change of schedules, if changes by this way are noted. `detail`: more words, after a space."""
        change = self._actor.change(action)
        if change is not None and names:
            self.rows.transaction.note_changes([change.of_schedule(self.now, name, detail) for name in names])

    def caught_up(self, known: Sequence[StoredSchedule]) -> Mapping[str, StoredSchedule]:
        """Locked rows by name, after missed occurrences of their present definition are made."""
        late = [each for each in known if each.look_at and each.next_due and each.next_due <= self.now]
        done = {each.name: each for each in known if each not in late}
        while late:
            advanced, messages = occurrences(self.rows, late, self.now)
            store_new(self.rows, messages)
            done |= {each.name: each for each in advanced}
            late = late[len(advanced) :]
        return done

    def _rewritten(self, row: StoredSchedule, schedule: Schedule) -> StoredSchedule:
        """The row with another definition.

        Its waiting occurrences are deleted. Occurrences that were due already are made again with the new content.
        """
        new = self._row(schedule)
        row, removed = self.without_occurrences(row)
        following = schedule.after(self.now)
        late = [each for each in removed if each <= self.now]
        store_new(self.rows, [schedule.message(each, following, due_time=self.now) for each in late])
        remaining = row.progress.remaining
        if schedule.max_runs != row.definition.get("max_runs"):
            remaining = None if schedule.max_runs is None else max(0, schedule.max_runs - row.progress.made)
        row = row.with_progress(remaining=remaining)
        ended = remaining == 0
        return replace(
            new,
            paused=row.paused,
            version=row.version + 1,
            progress=row.progress,
            next_due=None if ended else new.next_due,
            look_at=None if ended or row.paused else new.look_at,
        )

    def _make(self, changed: Sequence[StoredSchedule]) -> None:
        """Make the next occurrences of rows, which are written and locked."""
        advanced, messages = occurrences(self.rows, [each for each in changed if each.look_at], self.now)
        self.rows.advance(advanced)
        store_new(self.rows, messages)

    def _row(self, schedule: Schedule) -> StoredSchedule:
        """The row of a new schedule, which has made nothing yet. It is to be looked at now."""
        next_due = schedule.after(self.now)
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


def _names(rows: ScheduleRows, prefix: str) -> Sequence[str]:
    """The names of all schedules below a prefix."""
    names: list[str] = []
    while page := rows.list(prefix, after=names[-1] if names else None, limit=_PAGE):
        names += [each.name for each in page]
    return names


def _anchored_as(schedule: Schedule, row: StoredSchedule) -> Schedule:
    """`schedule`, whose interval counts from the beginning that the row has, if it names none."""
    known = row.definition.get("starts")
    starts = row.changed if known is None else datetime.fromisoformat(known)
    return schedule.anchored(starts)


def _is_same(schedule: Schedule, row: StoredSchedule) -> bool:
    ours, theirs = ((of.destination, of.body, dict(of.headers), dict(of.properties)) for of in (schedule, row))
    if schedule.definition() != row.definition or ours != theirs:
        return False
    first, second = (json.dumps([plain(each) for each in of[2:]], sort_keys=True) for of in (ours, theirs))
    return first == second  # Python takes 1 and True for equal
