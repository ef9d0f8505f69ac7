"""Who changed what, and when."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import insert, select

from delaystore.message import new_message_id, utc
from delaystore.stores._checks import check_number
from delaystore.stores.operable import AuditEntry
from delaystore.stores.sql.beside import ABOUT_BYTES, NAME_BYTES
from delaystore.stores.sql.operating._bound import Noun
from delaystore.stores.sql.operating._texts import fitting


class Changes(Noun):
    """Those at one endpoint, kept for good."""

    def note(self, entries: Sequence[AuditEntry]) -> None:
        """A row for each; texts that are too long are cut."""
        rows = [
            {
                "made_at": utc(entry.at, "at"),
                "change_id": new_message_id(),
                "made_by": fitting(entry.by, NAME_BYTES),
                "action": fitting(entry.action, NAME_BYTES),
                "about": fitting(entry.about, ABOUT_BYTES),
                "messages": entry.count,
            }
            for entry in entries
        ]
        if rows:
            self._execute(insert(self._tables.changes), rows)

    def last(self, limit: int, before: datetime | None) -> Sequence[AuditEntry]:
        """The newest first."""
        check_number(limit, "limit")
        table = self._tables.changes
        newest = select(table).order_by(table.c.made_at.desc(), table.c.change_id.desc()).limit(limit)
        if before is not None:
            newest = newest.where(table.c.made_at < utc(before, "before"))
        return [
            AuditEntry(at=row.made_at, by=row.made_by, action=row.action, about=row.about, count=row.messages)
            for row in self._execute(newest)
        ]
