"""Search and export: a range of an index, walked in pages."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Protocol, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Executable,
    Row,
    Select,
    Table,
    bindparam,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from delaystore.errors import ConfigurationError, StoreSetupError, UnknownLoadError
from delaystore.filters import MessageFilter
from delaystore.message import EARLIEST_DUE_TIME, PARKED, Position, is_load_id, position_of, utc
from delaystore.stores.abc import Page
from delaystore.stores.operable import EXAMINED
from delaystore.stores.records import Ending, Matching
from delaystore.stores.shared import check_number, seconds_of, start_of
from delaystore.stores.sql import setup
from delaystore.stores.sql._claims import Rows
from delaystore.stores.sql._history import NewEntries
from delaystore.stores.sql._parts import StoreParts
from delaystore.stores.sql._statements import LOOK_AHEAD, Statements, begins_with, is_parked
from delaystore.stores.sql.codec import UtcDateTime, decode_mapping
from delaystore.stores.sql.dialects import StoreDialect
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.rows import has_position, position_of_row, to_shown_message
from delaystore.stores.sql.schema import is_of_load


class BoundParts(Protocol):
    """A transaction, and its state; see BoundSqlStore."""

    @property
    def connection(self) -> Connection: ...

    @property
    def parts(self) -> StoreParts: ...

    def now(self) -> datetime: ...

    def stored(self, earliest: datetime) -> None: ...

    def new_entries(self, ending: Ending, at: datetime, by: str | None = None) -> NewEntries | None: ...


class OperatorQueries:
    """Statements about one subject, in the transaction of `bound`."""

    def __init__(self, bound: BoundParts) -> None:
        self._bound = bound
        self._sql = bound.parts.statements
        self._dialect, self._tables = self._sql.dialect, self._sql.operating_tables

    @property
    def _sql_as_of(self) -> Statements:
        with translated_errors():
            return self._sql.as_of(self._bound.parts.version, self._bound.connection)

    def _execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        with translated_errors():
            return self._bound.connection.execute(statement, parameters)

    def begin_writing(self) -> None:
        """Begin as the writer where there is but one, so that rows stay as they were read; elsewhere rows are
        locked.
        """
        with translated_errors():
            self._dialect.begin_writing(self._bound.connection)

    @property
    def has_loads(self) -> bool:
        """Whether the tables know the loads of messages; False: they are of an earlier release."""
        return self._bound.parts.version.is_from(setup.LOADED, self._bound.connection)

    def columns_of(self, table: Table, *added: str) -> Sequence[Column[Any]]:
        """The columns of `table` as it is: before version 0006 it lacks the columns `added`."""
        has_all = self.has_loads  # of the same version
        return [each for each in table.c if has_all or each.name not in added]

    def require(self, version: str, feature: str) -> None:
        """Raise StoreSetupError unless the tables are of `version`, or a later one, which has `feature`."""
        if not self._bound.parts.version.is_from(version, self._bound.connection):
            raise StoreSetupError(
                f"the table {self._sql.table.fullname!r} is of an earlier release, without {feature}; "
                "run `delaystore setup` to upgrade it"
            )

    def require_loads(self) -> None:
        """Raise StoreSetupError where `has_loads` is False."""
        self.require(setup.LOADED, "loads")

    def load_row(self, load_id: str, *, locked: bool = False) -> Row[Any]:
        """The row of a load. Raises UnknownLoadError."""
        self.require_loads()
        loads = self._tables.loads
        row = None
        if is_load_id(load_id):  # others would be the driver's error
            found = select(loads).where(loads.c.load_id == load_id)
            row = self._execute(found.with_for_update() if locked else found).first()
        if row is None:
            raise UnknownLoadError(f"there is no load {load_id!r:.80}; `delaystore loads list` shows the last ones")
        return row

    def number_of(self, load_id: str) -> int:
        """The number of a load. Raises UnknownLoadError; ConfigurationError for one of an earlier release."""
        return number_in(self.load_row(load_id))

    def of_load(self, wanted: MessageFilter) -> list[ColumnElement[bool]]:
        """The condition about the load, whose number is looked up; none where the filter names none."""
        return [] if wanted.load is None else [is_of_load(self._sql.table, self.number_of(wanted.load))]

    def upsert(self, table: Table, known: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Change the row that has the `known` values, or add it. No other caller writes it."""
        if not self._execute(update(table).where(*columns_match(table, known)).values(**values)).rowcount:
            self._execute(insert(table), {**known, **values})


def number_in(row: Row[Any]) -> int:
    """The number of the load of `row`. Raises ConfigurationError for one of an earlier release."""
    number: int | None = row.number
    if number is None:
        raise ConfigurationError(
            f"the load {row.load_id!r} is of an earlier release, which did not note its messages; choose them by other "
            "filters, or pause their destination"
        )
    return number


def columns_match(table: Table, known: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    """That a row has these values."""
    return [table.c[name] == value for name, value in known.items()]


_LONGEST_PATTERN: Final = 1000
"""Characters of a text that is looked for by LIKE; databases limit patterns."""


def conditions(wanted: MessageFilter, table: Table, dialect: StoreDialect) -> list[ColumnElement[bool]]:
    """All conditions of `wanted` but `of_load`; of headers only the texts that a row must have to be worth decoding."""
    found = list(_of_columns(wanted, table, dialect))
    for name, value in wanted.headers.items():
        found += _of_header(name, value, table.c.headers)
    return found


def _of_columns(wanted: MessageFilter, table: Table, dialect: StoreDialect) -> Iterator[ColumnElement[bool]]:
    if wanted.destination is not None:
        yield table.c.destination == wanted.destination
    if wanted.since is not None:
        yield table.c.due_time >= wanted.since
    if wanted.until is not None:
        yield table.c.due_time < wanted.until
    if wanted.id_prefix is not None:
        yield from begins_with(table.c.message_id, wanted.id_prefix)
    if wanted.failing is not None:
        yield dialect.is_failing(table) if wanted.failing else table.c.failure_count <= 0
    if wanted.paused is not None:
        yield is_parked(table) if wanted.paused else ~is_parked(table)


def _of_header(name: str, value: str, headers: ColumnElement[Any]) -> Iterator[ColumnElement[bool]]:
    """The text that the headers must contain so that a header may be `value`; see `codec` and `header_text`."""
    quoted = json.dumps(name)
    if len(quoted) <= _LONGEST_PATTERN:
        yield _contains(headers, quoted)
    inner = json.dumps(value)[1:-1]
    is_plain = value != "None" and not value.startswith(("[", "{")) and len(inner) <= _LONGEST_PATTERN
    if is_plain:  # what is kept otherwise than it is compared: None, lists, mappings, and bytes
        yield or_(_contains(headers, inner), _contains(headers, '"$bytes"'))


def _contains(headers: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    return headers.contains(part, autoescape=True)


def fitting(text: str, most_bytes: int) -> str:
    """`text` without characters that no database keeps, cut to `most_bytes` of UTF-8."""
    encoded = text.replace("\0", "").encode(errors="replace")
    return encoded[:most_bytes].decode(errors="ignore")


Point = TypeVar("Point")


@dataclass(frozen=True, slots=True)
class Walk(Generic[Point]):
    """The entries that meet `conditions`: those up to `end`; None: up to the last one."""

    conditions: Sequence[ColumnElement[bool]]
    end: Point | None


def walk(
    rows: Callable[[Select[Any]], Sequence[Any]],
    search: Select[Any],
    behind: Sequence[ColumnElement[bool]],
    examine: int,
    point_of: Callable[[Any], Point | None],
    up_to: Callable[[Point], ColumnElement[bool]],
) -> Walk[Point]:
    """The next `examine` entries of `search`, which is in order, behind a point.

    More of them where the walk would end at an entry that makes no point: the next walk could not begin there.
    """
    ends = rows(search.where(*behind).offset(examine - 1).limit(2))
    if len(ends) < 2:
        return Walk(behind, None)
    end = point_of(ends[0])
    if end is None:
        return walk(rows, search, behind, 2 * examine, point_of, up_to)
    return Walk([*behind, up_to(end)], end)


class SearchQueries(OperatorQueries):
    """Searches and counts. They go by an index where their transaction prefers that."""

    def page(
        self,
        wanted: MessageFilter,
        *,
        after: Position | None = None,
        limit: int = 100,
        examine: int = EXAMINED,
    ) -> Page:
        """See `OperableDelayedMessageStore.search`. It looks at few first: where most match, they fill the page."""
        check_number(limit, "limit")
        check_number(examine, "examine")
        few = min(examine, 2 * limit)
        page = self._page(wanted, after, limit, few)
        missing, examine = limit - len(page.messages), examine - few
        if page.next_key is None or missing <= 0 or not examine:
            return page
        rest = self._page(wanted, page.next_key, missing, examine)
        return Page([*page.messages, *rest.messages], rest.next_key)

    def _page(self, wanted: MessageFilter, after: Position | None, limit: int, examine: int) -> Page:
        walked = self._walked(wanted, after, examine)
        found = self._matching(wanted, walked, limit)
        if len(found) <= limit:
            return Page([to_shown_message(row) for row in found], walked.end)
        end = next((number for number in range(limit, 0, -1) if has_position(found[number - 1])), None)
        if end is None:
            return self._page(wanted, after, 2 * limit, examine)
        last = position_of_row(found[end - 1])
        return Page([to_shown_message(row) for row in found[:end]], last if wanted.load is None else _by_id(last))

    def count(
        self,
        wanted: MessageFilter,
        *,
        after: Position | None = None,
        examine: int = EXAMINED,
        due_times: bool = False,
    ) -> Matching:
        """See `OperableDelayedMessageStore.count_matching`. Reads no bodies, and headers where they are compared."""
        matches, end = self._next(wanted, after, examine)
        table = self._sql.table
        due_time = [self._sql.unmarked] if due_times else []
        if not wanted.headers:
            times = [extreme(each) for extreme in (func.min, func.max) for each in due_time]
            counted = select(func.count(), *times).select_from(table).where(*matches)
            row = self._execute(counted).one()
            return Matching.of(row[0], end, row[1:])
        rows = self._execute(select(table.c.message_id, table.c.headers, *due_time).where(*matches))
        due = [row[2] if due_time else None for row in _with_headers(wanted, rows, sys.maxsize)]
        return Matching.of(len(due), end, due)

    def count_by_due_time(
        self, wanted: MessageFilter, bucket: timedelta, *, after: Position | None = None, examine: int = EXAMINED
    ) -> tuple[Mapping[datetime, int], Position | None]:
        """See `OperableDelayedMessageStore.count_matching_by_due_time`; leaves out rows whose due time cannot be read.

        Reads no bodies, and headers where they are compared.
        """
        matches, end = self._next(wanted, after, examine)
        table, length = self._sql.table, bindparam("seconds", seconds_of(bucket), type_=BigInteger)
        number = self._dialect.bucket(self._sql.unmarked, length).label("number")
        if wanted.headers:
            rows = self._execute(select(table.c.message_id, table.c.headers, number).where(*matches))
            numbers: Mapping[Any, int] = Counter(row.number for row in _with_headers(wanted, rows, sys.maxsize))
        else:
            numbers = self._of_numbers(select(number).where(*matches))
        return {start_of(int(number), bucket): count for number, count in numbers.items() if number is not None}, end

    def _next(
        self, wanted: MessageFilter, after: Position | None, examine: int
    ) -> tuple[list[ColumnElement[bool]], Position | None]:
        """The conditions of the next `examine` rows that match, and the position to go on behind."""
        check_number(examine, "examine")
        walked = self._walked(wanted, after, examine)
        return [*walked.conditions, *conditions(wanted, self._sql.table, self._dialect)], walked.end

    def _of_numbers(self, numbers: Select[Any]) -> Mapping[Any, int]:
        """How often each `number` comes, in order."""
        number = numbers.subquery("numbered").c.number
        counted = select(number, func.count().label("messages")).group_by(number).order_by(number)
        return {row.number: row.messages for row in self._execute(counted)}

    def _walked(self, wanted: MessageFilter, after: Position | None, examine: int) -> Walk[Position]:
        """The next messages to look at: those of a load in the order of their ids, as its index has them."""
        if wanted.load is None:
            return self.positions(_beginning(wanted, after), examine, failing=wanted.failing is True)
        key = self._sql.table.c.message_id
        behind = [*self.of_load(wanted), *([] if after is None else [key > literal(after.message_id, key.type)])]
        return walk(
            lambda statement: self._execute(statement).all(),
            select(self._sql.table.c.next_attempt, key).order_by(key),
            behind,
            examine,
            lambda row: _by_id(position_of_row(row)) if has_position(row) else None,
            lambda end: key <= literal(end.message_id, key.type),
        )

    def positions(
        self, after: Position | None, examine: int, *more: ColumnElement[bool], failing: bool = False
    ) -> Walk[Position]:
        """A walk in the order of positions, of messages that have failed before if `failing`."""
        table, dialect = self._sql.table, self._dialect
        order = dialect.failing_order(table) if failing else [table.c.next_attempt, table.c.message_id]
        behind = [*([dialect.is_failing(table)] if failing else []), *more]
        if after is not None:
            behind.append(dialect.behind(order, values_of(order, after)))
        search = select(order[0].label("next_attempt"), order[1].label("message_id")).order_by(*order)
        return walk(
            lambda statement: self._execute(statement).all(),
            search,
            behind,
            examine,
            lambda row: position_of(row) if has_position(row) else None,
            lambda end: dialect.up_to(order, values_of(order, end)),
        )

    def _matching(self, wanted: MessageFilter, walked: Walk[Position], limit: int) -> Rows:
        """The first `limit` and one of the rows that match, whole, in the order of positions."""
        table = self._sql.table
        order = self._dialect.failing_order(table) if wanted.failing else [table.c.next_attempt, table.c.message_id]
        if wanted.load is not None:
            order = [table.c.message_id]
        matches = [*walked.conditions, *conditions(wanted, table, self._dialect)]
        if not wanted.headers:
            return self._execute(self._sql_as_of.shown.where(*matches).order_by(*order).limit(limit + 1)).all()
        light = select(table.c.message_id, table.c.headers).where(*matches).order_by(*order)
        ids = [row.message_id for row in _with_headers(wanted, self._execute(light), limit + 1)]
        rows = {row.message_id: row for row in self._execute(self._sql_as_of.show, {"ids": ids})} if ids else {}
        return [rows[message_id] for message_id in ids if message_id in rows]

    def count_between(self, since: datetime, until: datetime, bucket: timedelta) -> Mapping[datetime, int]:
        """By the index of next attempts."""
        found = self._of_numbers(self._between(since, until, bucket))
        return {start_of(int(each), bucket): count for each, count in found.items() if each is not None}

    def count_between_by_destination(
        self, since: datetime, until: datetime, bucket: timedelta, destinations: Collection[str]
    ) -> Mapping[str, Mapping[datetime, int]]:
        """By the index of next attempts."""
        destination = self._sql.table.c.destination
        between = self._between(since, until, bucket).add_columns(destination)
        numbered = between.where(destination.in_(list(destinations))).subquery("numbered")
        groups = numbered.c.destination, numbered.c.number
        counted = select(*groups, func.count().label("messages")).group_by(*groups).order_by(*groups)
        found: dict[str, dict[datetime, int]] = {}
        for row in self._execute(counted):
            if row.number is not None:
                found.setdefault(row.destination, {})[start_of(int(row.number), bucket)] = row.messages
        return found

    def _between(self, since: datetime, until: datetime, bucket: timedelta) -> Select[Any]:
        """The number of the bucket of each message with its next attempt in that time."""
        table, length = self._sql.table, bindparam("seconds", seconds_of(bucket), type_=BigInteger)
        number = self._dialect.bucket(table.c.next_attempt, length).label("number")
        is_between = (table.c.next_attempt >= utc(since, "since")) & (table.c.next_attempt < utc(until, "until"))
        return select(number).where(is_between)

    def count_by_destination(self, most: int = 1_000) -> Mapping[str, int]:
        """Reads all."""
        check_number(most, "most")
        destination, count = self._sql.table.c.destination, func.count().label("messages")
        counted = select(destination, count).group_by(destination).order_by(count.desc(), destination).limit(most)
        return {row.destination: row.messages for row in self._execute(counted)}

    def count_failing(self, at_most: int) -> int:
        """By the index of failed messages."""
        table = self._sql.table
        return self._count(select(literal(1)).select_from(table).where(self._dialect.is_failing(table)), at_most)

    def first_due_of_failing(self) -> datetime | None:
        """The earliest due time of messages that have failed before and are shown first again; parked messages do
        not count.
        """
        table = self._sql.table
        shown = select(table.c.due_time).where(self._dialect.is_failing(table), ~is_parked(table))
        ahead = shown.order_by(*self._dialect.failing_order(table)).limit(LOOK_AHEAD).subquery("ahead")
        is_time = ahead.c.due_time >= literal(EARLIEST_DUE_TIME, UtcDateTime)
        first = self._execute(select(func.min(ahead.c.due_time)).where(is_time)).scalar()
        return first if isinstance(first, datetime) else None  # or it was written by hand

    def count_parked(self, at_most: int) -> int:
        """By the index of next attempts."""
        table = self._sql.table
        return self._count(select(literal(1)).select_from(table).where(is_parked(table)), at_most)

    def _count(self, statement: Select[Any], at_most: int) -> int:
        check_number(at_most, "at_most")
        some = statement.limit(at_most).subquery("some")
        return int(self._execute(select(func.count()).select_from(some)).scalar_one())


def _by_id(position: Position) -> Position:
    """The position of a message where messages are in the order of their ids alone."""
    return Position(EARLIEST_DUE_TIME, position.message_id)


def _beginning(wanted: MessageFilter, after: Position | None) -> Position | None:
    """The point behind which the first one that matches may be: no next attempt comes before the due time."""
    points = [after]
    if wanted.since is not None:
        points.append(Position(wanted.since, ""))
    if wanted.paused:
        points.append(Position(PARKED, ""))
    return max((point for point in points if point is not None), default=None)


def values_of(order: Sequence[ColumnElement[Any]], position: Position) -> list[ColumnElement[Any]]:
    """`position`, to be compared with the columns of an order."""
    return [literal(value, column.type) for value, column in zip(position, order, strict=True)]


def _with_headers(wanted: MessageFilter, rows: Any, most: int) -> Iterator[Any]:
    """The first `most` rows whose headers match; headers that cannot be read do not."""
    for row in rows:
        try:
            headers = decode_mapping(row.headers)
        except ValueError:
            continue
        if type(row.message_id) is str and wanted.matches_headers(headers):
            yield row
            most -= 1
            if not most:
                return
