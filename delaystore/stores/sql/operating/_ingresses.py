"""Ingresses that live, and queues that have none any more: rows of the dispatchers' table, told apart by their ids."""

import json
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Table, and_, delete, select

from delaystore.stores._ingresses import told_of
from delaystore.stores.operable import GONE_FOR, IngressRecord
from delaystore.stores.sql._prefixes import begins_with
from delaystore.stores.sql.operating._bound import Noun

_PREFIX: Final = "ingress:"
"""Of the ids of rows. Dispatchers have UUIDs."""
_MOST: Final = 1_000
"""Rows that are read: more have only died, one after the other, within a day."""
_COLUMNS: Final = ("ingress_id", "beat")
"""What has a column of its own."""
_TIMES: Final = ("since", "rejected_seen")


def are_ingresses(table: Table) -> ColumnElement[bool]:
    """That a row of the dispatchers' table is an ingress."""
    return and_(*begins_with(table.c.dispatcher_id, _PREFIX))


class Ingresses(Noun):
    """Those of one endpoint."""

    def beat(self, record: IngressRecord) -> None:
        """Write the record."""
        self.begin_writing()
        known = {"dispatcher_id": _PREFIX + record.ingress_id}
        self.upsert(self._tables.dispatchers, known, {"beat": self._bound.now(), "record": _document(record)})

    def forget(self) -> None:
        """Delete what is old."""
        table = self._tables.dispatchers
        self._execute(delete(table).where(are_ingresses(table), table.c.beat < self._bound.now() - GONE_FOR))

    def retire(self, ingress_id: str) -> None:
        """Forget one, if it is known."""
        table = self._tables.dispatchers
        self._execute(delete(table).where(table.c.dispatcher_id == _PREFIX + ingress_id))

    def all(self) -> Sequence[IngressRecord]:
        """Those that are told of."""
        table = self._tables.dispatchers
        rows = self._execute(select(table).where(are_ingresses(table)).order_by(table.c.beat.desc()).limit(_MOST))
        return told_of(map(_record, rows), self._bound.now())


def _document(record: IngressRecord) -> str:
    told = {each.name: getattr(record, each.name) for each in fields(record) if each.name not in _COLUMNS}
    return json.dumps(told, default=lambda value: value.isoformat() if isinstance(value, datetime) else dict(value))


def _record(row: Any) -> IngressRecord:
    """What another release has written may have more, or less."""
    document = json.loads(row.record)
    known = {each.name: document[each.name] for each in fields(IngressRecord) if each.name in document}
    for name in _TIMES:
        known[name] = None if known.get(name) is None else datetime.fromisoformat(known[name])
    return IngressRecord(**known, ingress_id=row.dispatcher_id.removeprefix(_PREFIX), beat=row.beat)
