"""Entries of the history that removals of rows leave behind, in the same transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    CTE,
    ColumnElement,
    Delete,
    FromClause,
    Insert,
    Integer,
    Table,
    bindparam,
    case,
    column,
    insert,
    literal,
    select,
    text,
)
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.util import memoized_property

from delaystore.stores.records import ATTEMPTED, Ending
from delaystore.stores.sql.codec import FAILURES, FAILURES_OF, LOAD, MESSAGE_KEY, ExactText, UtcDateTime
from delaystore.stores.sql.faults import escaped

_ENDING: Final = ExactText(20)


class EntryInserts:
    """Inserts of entries from rows of the messages' table `live`.

    `due_time`, `body_hash`: a row's due time without marks, and the SHA-256 of its body.
    Parameters: `history_ending`, `history_at`, `history_by`, `history_attempts`, and those of the rows' conditions.
    """

    def __init__(
        self, live: Table, history: Table, due_time: ColumnElement[datetime], body_hash: ColumnElement[bytes]
    ) -> None:
        self.live, self._history, self._due_time, self._body_hash = live, history, due_time, body_hash
        self._last: tuple[Sequence[ColumnElement[bool]], Insert] = ((), insert(history))

    @memoized_property
    def columns(self) -> Sequence[ColumnElement[Any]]:
        """The values of a row for its entry."""
        live = self.live
        return [
            live.c.message_id,
            live.c[MESSAGE_KEY],
            live.c[LOAD],
            live.c.destination,
            self._due_time.label("due_time"),
            live.c.failure_count,
            self._body_hash.label("body_hash"),
            case((live.c[FAILURES_OF] == live.c.message_id, live.c[FAILURES])).label(FAILURES),
        ]

    def from_rows(self, *where: ColumnElement[bool]) -> Insert:
        """Insert entries of rows that are about to be removed, and that no other session can change meanwhile.

        The last statement is kept: to build it takes longer than to run it.
        """
        conditions, statement = self._last
        if len(conditions) != len(where) or any(one is not other for one, other in zip(conditions, where, strict=True)):
            statement = self._insert(select(*self.columns).where(*where).subquery("leaving"))
            self._last = where, statement
        return statement

    def of_removed(self, removed: FromClause) -> CTE:
        """Insert entries of rows that another part of the statement removes, whose `columns` it returns."""
        return self._insert(removed).cte("entries")

    def removing(self, removal: Delete) -> Insert:
        """Remove rows, and insert their entries, in one statement, whose rowcount is the number of the rows."""
        return self._insert(removal.returning(*self.columns).cte("removed")).execution_options(preserve_rowcount=True)

    def removing_by_text(self, removal: str) -> Insert:
        """As `removing`, of a DELETE in PostgreSQL's words."""
        removed = text(f"{removal} RETURNING {self._columns_as_text}").columns(
            *(column(each.name, each.type) for each in self.columns)
        )
        return self._insert(removed.cte("removed")).execution_options(preserve_rowcount=True)

    def _insert(self, rows: FromClause) -> Insert:
        at = bindparam("history_at", type_=UtcDateTime())
        ending = bindparam("history_ending", type_=_ENDING)
        is_early = (ending == literal(Ending.DELIVERED.value, _ENDING)) & (rows.c.due_time > at)
        values = {
            **{name: rows.c[name] for name in ("message_id", MESSAGE_KEY, LOAD, "destination", "due_time")},
            "ended_at": at,
            "attempts": rows.c.failure_count + bindparam("history_attempts", type_=Integer),
            "ending": case((is_early, literal(Ending.HANDED_OVER.value, _ENDING)), else_=ending),
            "ended_by": bindparam("history_by", type_=self._history.c.ended_by.type),
            **{name: rows.c[name] for name in ("body_hash", FAILURES)},
        }
        labelled = [value.label(name) for name, value in values.items()]
        return insert(self._history).from_select(list(values), select(*labelled), include_defaults=False)

    @memoized_property
    def _columns_as_text(self) -> str:
        """`columns` as `text` takes them, in PostgreSQL's words."""
        from sqlalchemy.dialects import postgresql  # loads slowly, and programs with another database need it not

        dialect: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        inline = {"include_table": False, "literal_binds": True}
        compiled = (f"{each.compile(dialect=dialect, compile_kwargs=inline)} AS {each.name}" for each in self.columns)
        return escaped(", ".join(compiled))


@dataclass(frozen=True, slots=True)
class NewEntries:
    """The entries of rows that are removed in one way, at one time."""

    inserts: EntryInserts
    ending: Ending
    at: datetime
    by: str | None = None

    @property
    def values(self) -> Mapping[str, Any]:
        """The parameters of the inserts."""
        return {
            "history_ending": self.ending.value,
            "history_at": self.at,
            "history_by": self.by,
            "history_attempts": int(self.ending in ATTEMPTED),
        }
