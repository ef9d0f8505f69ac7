"""What dispatchers and ingresses report of themselves."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Table, and_, delete, not_, select

from delaystore.message import utc
from delaystore.stores.documents import LatenessHistogram
from delaystore.stores.records import ACTIVITY_KEPT, ALIVE, GONE_FOR, Activity, DispatcherRecord, IngressRecord
from delaystore.stores.shared import ingresses_to_show
from delaystore.stores.sql._statements import begins_with
from delaystore.stores.sql.operating._search import OperatorQueries, columns_match

_PREFIX: Final = "ingress:"
"""Of the ids of rows. Dispatchers have UUIDs."""
_MOST: Final = 1_000
"""Rows that are read: more have only died, one after the other, within a day."""
_COLUMNS: Final = ("dispatcher_id", "ingress_id", "heartbeat")
"""The fields that have a column of their own."""
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("since", "rejected_seen", "error_queue_seen"), datetime.fromisoformat),
    "retention": lambda seconds: timedelta(seconds=seconds),
}
"""How the fields are read that JSON has no type for."""


def are_ingresses(table: Table) -> ColumnElement[bool]:
    """That a row of the dispatchers' table is an ingress."""
    return and_(*begins_with(table.c.dispatcher_id, _PREFIX))


class IngressReports(OperatorQueries):
    """Those of one endpoint."""

    def heartbeat(self, record: IngressRecord) -> None:
        """Write the record, and delete those of ingresses of its queue that have died."""
        self.begin_writing()
        known = {"dispatcher_id": _PREFIX + record.ingress_id}
        self.upsert(self._tables.dispatchers, known, {"beat": self._bound.now(), "record": _document(record)})
        self._delete_offline(record.queue)

    def forget(self) -> None:
        """Delete old rows."""
        table = self._tables.dispatchers
        self._execute(delete(table).where(are_ingresses(table), table.c.beat < self._bound.now() - GONE_FOR))

    def retire(self, ingress_id: str) -> None:
        """Forget one, if it is known, and those of its queue that have died."""
        self.begin_writing()
        table = self._tables.dispatchers
        its_own = table.c.dispatcher_id == _PREFIX + ingress_id
        row = self._execute(select(table).where(its_own)).first()
        if row is not None:
            self._execute(delete(table).where(its_own))
            self._delete_offline(_queue_of(row))

    def _delete_offline(self, queue: str | None) -> None:
        """Delete the records of ingresses of `queue` that have died: another one takes from it, or did until now.

        Each by its primary key, in the order of ids, so that two ingresses that do this never wait for one another; and
        only if it has not reported again meanwhile.
        """
        table = self._tables.dispatchers
        is_offline = table.c.beat < self._bound.now() - ALIVE
        rows = self._execute(select(table).where(are_ingresses(table), is_offline).order_by(table.c.dispatcher_id))
        for row in rows.all():
            if _queue_of(row) == queue:
                self._execute(delete(table).where(table.c.dispatcher_id == row.dispatcher_id, is_offline))

    def all(self) -> Sequence[IngressRecord]:
        """The ingresses that `ingresses_to_show` shows."""
        table = self._tables.dispatchers
        rows = self._execute(select(table).where(are_ingresses(table)).order_by(table.c.beat.desc()).limit(_MOST))
        return ingresses_to_show(map(_ingress_record, rows), self._bound.now())


def _document(record: DispatcherRecord | IngressRecord) -> str:
    """The record except its id and heartbeat, as JSON: times in ISO 8601, durations in seconds."""
    known = {each.name: getattr(record, each.name) for each in fields(record) if each.name not in _COLUMNS}
    return json.dumps(known, default=_plain)


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else dict(value)  # type: ignore[call-overload]


def _known(row: Any, kind: type[DispatcherRecord | IngressRecord]) -> dict[str, Any]:
    """The fields of the record in a row, which another release may have written with more of them, or fewer."""
    document = json.loads(row.record)
    known = {each.name: document[each.name] for each in fields(kind) if each.name in document}
    for name, read in _READERS.items():
        if known.get(name) is not None:
            known[name] = read(known[name])
    return known | {"heartbeat": row.beat}


def _queue_of(row: Any) -> str | None:
    """The queue of the ingress of a row."""
    queue: str | None = json.loads(row.record).get("queue")
    return queue


def _ingress_record(row: Any) -> IngressRecord:
    return IngressRecord(**_known(row, IngressRecord), ingress_id=row.dispatcher_id.removeprefix(_PREFIX))


_EXPIRED: Final = "expired"
"""The column of expired messages. A program of an earlier release leaves it NULL."""
FORGOTTEN: Final = timedelta(hours=1)
"""How long the record of a dispatcher that died is kept."""


class DispatcherReports(OperatorQueries):
    """Those of one endpoint."""

    def heartbeat(self, record: DispatcherRecord, done: Sequence[Activity]) -> None:
        """Write the record, and add its activity. Who has written a record alone adds to its rows."""
        self.begin_writing()
        table, known = self._tables.dispatchers, {"dispatcher_id": record.dispatcher_id}
        self.upsert(table, known, {"beat": self._bound.now(), "record": _document(record)})
        for activity in done:
            self._add(record.dispatcher_id, activity)

    def forget(self) -> None:
        """Delete old rows."""
        now, dispatchers, activity = self._bound.now(), self._tables.dispatchers, self._tables.activity
        old = dispatchers.c.beat < now - FORGOTTEN
        self._execute(delete(dispatchers).where(old, not_(are_ingresses(dispatchers))))
        self._execute(delete(activity).where(activity.c.minute < now - ACTIVITY_KEPT))

    def retire(self, dispatcher_id: str) -> None:
        """Forget one, if it is known; its activity stays."""
        table = self._tables.dispatchers
        self._execute(delete(table).where(table.c.dispatcher_id == dispatcher_id))

    def alive(self) -> Sequence[DispatcherRecord]:
        """By name and id."""
        table = self._tables.dispatchers
        living = table.c.beat >= self._bound.now() - ALIVE
        rows = self._execute(select(table).where(living, not_(are_ingresses(table))))
        return sorted(map(_record, rows), key=lambda each: (each.name, each.dispatcher_id))

    def activity(self, since: datetime) -> Sequence[Activity]:
        """The activity of all together, by minute."""
        table, minutes = self._tables.activity, dict[datetime, Activity]()
        columns, is_since = self.columns_of(table, _EXPIRED), table.c.minute >= utc(since, "since")
        rows = self._execute(select(*columns).where(is_since).order_by(table.c.minute))
        for row in rows:
            each = _activity(row)
            minutes[each.minute] = minutes[each.minute] + each if each.minute in minutes else each
        return list(minutes.values())

    def _add(self, dispatcher_id: str, done: Activity) -> None:
        table, known = self._tables.activity, {"minute": utc(done.minute, "minute"), "dispatcher_id": dispatcher_id}
        columns = self.columns_of(table, _EXPIRED)
        row = self._execute(select(*columns).where(*columns_match(table, known))).first()
        counts = _counts(done if row is None else _activity(row) + done)
        self.upsert(table, known, {each.name: counts[each.name] for each in columns if each.name in counts})


def _record(row: Any) -> DispatcherRecord:
    return DispatcherRecord(**_known(row, DispatcherRecord), dispatcher_id=row.dispatcher_id)


def _counts(done: Activity) -> dict[str, Any]:
    return {
        "delivered": done.delivered,
        "failed": done.failed,
        "moved_to_error_queue": done.moved_to_error_queue,
        "gave_way": done.deferred,
        "lateness": done.lateness.text(),
        "by_destination": json.dumps(dict(done.by_destination)),
        _EXPIRED: done.expired,
    }


def _activity(row: Any) -> Activity:
    return Activity(
        minute=row.minute,
        delivered=row.delivered,
        failed=row.failed,
        moved_to_error_queue=row.moved_to_error_queue,
        deferred=row.gave_way,
        lateness=LatenessHistogram.from_text(row.lateness),
        by_destination=json.loads(row.by_destination),
        expired=row._mapping.get(_EXPIRED) or 0,
    )
