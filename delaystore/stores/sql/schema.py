"""The tables: messages, operators' tables beside them, and the catalog of endpoints."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Delete,
    Double,
    Engine,
    Index,
    Integer,
    MetaData,
    Select,
    Table,
    delete,
    inspect,
    literal,
    select,
)
from sqlalchemy.exc import DBAPIError, NoSuchTableError
from sqlalchemy.util import memoized_property

from delaystore.message import MAX_ADDRESS_BYTES, MAX_KEY_BYTES, MAX_LOAD_ID_BYTES, MAX_MESSAGE_ID_BYTES
from delaystore.stores.records import name_of_load
from delaystore.stores.sql.codec import (
    COLUMNS,
    DIGEST,
    FAILURES,
    FAILURES_OF,
    FIRST_SENT,
    KEY,
    LOAD,
    MESSAGE_KEY,
    NOT_AFTER,
    Body,
    ExactText,
    Json,
    UtcDateTime,
    in_order,
)
from delaystore.stores.sql.dialects import Claiming, StoreDialect, fault_of
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.faults import Fault, quoted_table
from delaystore.stores.sql.setup import HEAD, current_version, version_table_name
from delaystore.stores.sql.urls import (
    TEST_CLOCK,
    TOKEN_LENGTH,
    default_table_name,
    derived_name,
    loads_table_name,
    operating_table_names,
    partitions_table_name,
)


def delayed_table(name: str, schema: str | None, dialect: StoreDialect) -> Table:
    """The table `schema.name`, with all columns of this release; those of a lease where claims are leases.

    Statements about messages without a key name only the columns of COLUMNS, so that they also serve the table of an
    earlier release that is not upgraded yet.

    The index by position serves "due now" and `list`; it holds the message_id so that a position in it is exact even
    where many messages are due at once. The index of keys holds only messages with a key where the database can do
    that; elsewhere it takes any number of NULLs. The index of messages that have failed before holds nothing else,
    so that storing a message costs nothing more; where the database cannot do that, it is of a column that is NULL
    for all the others. The index of loads holds only messages that a load stored, where the database can do that.
    """
    leases = dialect.claiming is Claiming.LEASES
    table = quoted_table(
        name,
        schema,
        *(column.in_table() for column in COLUMNS),
        *([Column("claimed_by", ExactText(36)), Column("claimed_until", UtcDateTime)] if leases else []),
        Column(MESSAGE_KEY, ExactText(MAX_KEY_BYTES)),
        Column(FIRST_SENT, UtcDateTime),
        Column(FAILURES, Json()),
        Column(FAILURES_OF, ExactText(MAX_MESSAGE_ID_BYTES)),
        *dialect.failing_columns(),
        Column(NOT_AFTER, UtcDateTime),
        Column(LOAD, Integer),
        **dialect.table_options,
    )
    Index(f"{name}_due", *in_order(table), _table=table)
    if leases:
        is_claimed = dialect.index_condition(table.c.claimed_by.is_not(None))
        Index(f"{name}_claims", table.c.claimed_until, _table=table, **is_claimed)
    key = table.c[MESSAGE_KEY]
    Index(f"{name}_keys", key, unique=True, _table=table, **dialect.index_condition(key.is_not(None)))
    is_failing = dialect.index_condition(dialect.is_failing(table))
    Index(f"{name}_failing", *dialect.failing_order(table), _table=table, **is_failing)
    of_loads = dialect.index_condition(table.c[LOAD].is_not(None))
    Index(f"{name}_load", table.c[LOAD], table.c[KEY], _table=table, **of_loads)
    return table


def partitions_table(live: Table, dialect: StoreDialect) -> Table:
    """The table whose children are the partitions of `live`; it has no rows of its own."""
    name = partitions_table_name(live.name, dialect)
    return quoted_table(name, live.schema, Column(KEY, ExactText(MAX_MESSAGE_ID_BYTES), nullable=False))


def is_cancelled(load: Any) -> bool:
    """Whether a load is cancelled, by its row, and no run loads it again."""
    return load.cancelled_at is not None and load.token is None


def is_of_load(table: Table, number: int) -> ColumnElement[bool]:
    """Whether the load of that number has stored a row.

    The number stands in the statement itself: so PostgreSQL leaves out the bulk partitions of other loads.
    """
    return table.c[LOAD] == literal(number, table.c[LOAD].type, literal_execute=True)


NAME_BYTES = 255
"""Length of the name of a person, a dispatcher, or an operation."""
ABOUT_BYTES = 4000
"""Length of the text that names the changed messages or destination."""


class OperatingTables:
    """The tables of operators and dispatchers beside the `live` table of an endpoint, each built when it is first used.

    A row of `destinations` says that it is paused, limited, or resuming; `_allowances` has its bucket.
    `dispatchers` has a row for each that lives, or did until lately; `activity` one for each dispatcher and minute.
    `loads` has a row for each load of files, DataFrames or a stream; `load_changes` how many of its messages left the
    store without a delivery. `history` has a row for each message that has left, if `settings` say so. `schedules` has
    a row for each recurring schedule.
    """

    def __init__(self, live: Table, dialect: StoreDialect) -> None:
        self._live, self._dialect = live, dialect
        self._names = operating_table_names(live.name, dialect)

    @memoized_property
    def destinations(self) -> Table:
        """Destinations that are paused or limited."""
        return quoted_table(self._names[0], self._live.schema, *_destinations(), **self._dialect.table_options)

    @memoized_property
    def dispatchers(self) -> Table:
        """Heartbeats, also of ingresses."""
        return quoted_table(self._names[1], self._live.schema, *_dispatchers(), **self._dialect.table_options)

    @memoized_property
    def activity(self) -> Table:
        """What dispatchers did."""
        return quoted_table(self._names[2], self._live.schema, *_activity(), **self._dialect.table_options)

    @memoized_property
    def operations(self) -> Table:
        """Operations on many messages."""
        began = derived_name(self._live.name, "_operations_began", self._dialect)
        index = Index(began, "began", "operation_id")
        return quoted_table(self._names[3], self._live.schema, *_operations(), index, **self._dialect.table_options)

    @memoized_property
    def changes(self) -> Table:
        """The audit trail."""
        table = quoted_table(self._names[4], self._live.schema, *_changes(), **self._dialect.table_options)
        message_id = table.c.message_id
        of_one = self._dialect.index_condition(message_id.is_not(None))
        Index(derived_name(self._live.name, "_changes_id", self._dialect), message_id, _table=table, **of_one)
        return table

    @memoized_property
    def loads(self) -> Table:
        """Loads of files, DataFrames and streams."""
        name, number = loads_table_name(self._live.name, self._dialect), Column("number", Integer)
        index = Index(derived_name(self._live.name, "_loads_number", self._dialect), number, unique=True)
        return quoted_table(name, self._live.schema, *_loads(), number, index, **self._dialect.table_options)

    @memoized_property
    def load_changes(self) -> Table:
        """How many messages of loads were cancelled, replaced, expired, or moved to the error queue."""
        return quoted_table(self._names[5], self._live.schema, *_load_changes(), **self._dialect.table_options)

    @memoized_property
    def settings(self) -> Table:
        """Settings of the endpoint that all its processes heed."""
        return quoted_table(self._names[6], self._live.schema, *_settings(), **self._dialect.table_options)

    @memoized_property
    def history(self) -> Table:
        """How messages have left the store."""
        dialect, live = self._dialect, self._live
        columns = [*dialect.history_columns(), *_history()]
        table = quoted_table(self._names[7], live.schema, *columns, **dialect.history_options)
        key = table.c[MESSAGE_KEY]
        has_key = dialect.index_condition(key.is_not(None))
        Index(derived_name(live.name, "_history_id", dialect), table.c.message_id, _table=table)
        Index(derived_name(live.name, "_history_key", dialect), key, _table=table, **has_key)
        Index(derived_name(live.name, "_history_ended", dialect), table.c.ended_at, table.c.message_id, _table=table)
        return table

    @memoized_property
    def schedules(self) -> Table:
        """Recurring schedules."""
        table = quoted_table(self._names[8], self._live.schema, *_schedules(), **self._dialect.table_options)
        look_at = table.c.look_at
        is_active = self._dialect.index_condition(look_at.is_not(None))
        name = derived_name(self._live.name, "_schedules_look", self._dialect)
        Index(name, look_at, table.c.name, _table=table, **is_active)
        return table

    @property
    def all(self) -> list[Table]:
        """All of them."""
        beside = [self.destinations, self.dispatchers, self.activity, self.operations, self.changes]
        return [*beside, self.loads, self.load_changes, self.settings, self.history, self.schedules]


# Types that several columns share: SQLAlchemy asks the dialect about each instance of a type, for each engine.
_NAME: Final = ExactText(NAME_BYTES)
_ADDRESS: Final = ExactText(MAX_ADDRESS_BYTES)
_MESSAGE_ID: Final = ExactText(MAX_MESSAGE_ID_BYTES)
_TIME: Final = UtcDateTime()
_JSON: Final = Json()


def paused_names(tables: OperatingTables, now: datetime, names: Collection[str] | None = None) -> Select[Any]:
    """The names of the destinations, of `names` or of all, that are paused at `now`."""
    table = tables.destinations
    lasts = table.c.paused_until.is_(None) | (table.c.paused_until > literal(now, UtcDateTime))
    found = select(table.c.name).where(table.c.paused == 1, lasts).order_by(table.c.name)
    return found if names is None else found.where(table.c.name.in_(sorted(names)))


def pause_removal(tables: OperatingTables, number: int) -> Delete:
    """Delete the pause of the load of that number."""
    return delete(tables.destinations).where(tables.destinations.c.name == name_of_load(number))


def promised_times(tables: OperatingTables, names: Collection[str]) -> Select[Any]:
    """Of the destinations of `names` that are limited: the name, and the last time that was given to a message."""
    table = tables.destinations
    limited = table.c.name.in_(sorted(names)) & table.c.max_rate.is_not(None)
    return select(table.c.name, table.c.promised).where(limited).order_by(table.c.name)


def _destinations() -> list[Column[Any]]:
    return [
        Column("name", _ADDRESS, primary_key=True),
        Column("paused", Integer, nullable=False),
        Column("paused_until", _TIME),
        Column("resuming", Integer, nullable=False),
        Column("max_rate", Double),
        Column("full_at", _TIME),
        Column("promised", _TIME),
        Column("changed", _TIME, nullable=False),
        Column("changed_by", _NAME, nullable=False),
    ]


def _dispatchers() -> list[Column[Any]]:
    return [
        Column("dispatcher_id", _NAME, primary_key=True),
        Column("beat", _TIME, nullable=False),
        Column("record", _JSON, nullable=False),
    ]


def _activity() -> list[Column[Any]]:
    counts = ("delivered", "failed", "moved_to_error_queue", "gave_way")  # the last one: deferred messages
    return [
        Column("minute", _TIME, primary_key=True),
        Column("dispatcher_id", _NAME, primary_key=True),
        *(Column(name, BigInteger, nullable=False) for name in counts),
        Column("lateness", _JSON, nullable=False),
        Column("by_destination", _JSON, nullable=False),
        Column("expired", BigInteger),
    ]


def _operations() -> list[Column[Any]]:
    return [
        Column("operation_id", _NAME, primary_key=True),
        Column("kind", ExactText(20), nullable=False),
        Column("wanted", _JSON, nullable=False),
        Column("begun_by", _NAME, nullable=False),
        Column("began", _TIME, nullable=False),
        Column("due_time", _TIME),
        Column("ended", _TIME),
        Column("state", ExactText(20), nullable=False),
        Column("after_id", _MESSAGE_ID),
        Column("examined", BigInteger, nullable=False),
        Column("changed", BigInteger, nullable=False),
        Column("held", BigInteger, nullable=False),
        Column("held_ids", _JSON, nullable=False),
        Column("shift", BigInteger),
        Column("time_zone", _NAME),
    ]


def _changes() -> list[Column[Any]]:
    """The id is time-ordered: of those made at the same time, the later one has the greater id.

    Releases that know schema version 0004 alone write the columns up to `messages`, and leave out the others.
    """
    return [
        Column("made_at", _TIME, primary_key=True),
        Column("change_id", ExactText(36), primary_key=True),
        Column("made_by", _NAME, nullable=False),
        Column("action", _NAME, nullable=False),
        Column("about", ExactText(ABOUT_BYTES), nullable=False),
        Column("messages", BigInteger, nullable=False),
        Column("way", ExactText(20)),
        Column("message_id", _MESSAGE_ID),
        Column("message_key", ExactText(MAX_KEY_BYTES)),
        Column("destination", _ADDRESS),
        Column("wanted", _JSON),
        Column("operation_id", _NAME),
        Column("old_due_time", _TIME),
        Column("new_due_time", _TIME),
    ]


def _settings() -> list[Column[Any]]:
    return [Column("name", ExactText(50), primary_key=True), Column("value", _JSON, nullable=False)]


def _history() -> list[Column[Any]]:
    """Without a primary key: one message may end twice at the same time, as where a test sets the clock."""
    return [
        Column("message_id", _MESSAGE_ID, nullable=False),
        Column(MESSAGE_KEY, ExactText(MAX_KEY_BYTES)),
        Column(LOAD, Integer),
        Column("destination", _ADDRESS, nullable=False),
        Column("due_time", _TIME, nullable=False),
        Column("ended_at", _TIME, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("ending", ExactText(20), nullable=False),
        Column("ended_by", _NAME),
        Column("body_hash", DIGEST),
        Column(FAILURES, _JSON),
    ]


def _schedules() -> list[Column[Any]]:
    return [
        Column("name", _NAME, primary_key=True),
        Column("destination", _ADDRESS, nullable=False),
        Column("body", Body(), nullable=False),
        Column("headers", _JSON),
        Column("properties", _JSON),
        Column("definition", _JSON, nullable=False),
        Column("zone", _NAME, nullable=False),
        Column("zone_rules", ExactText(20), nullable=False),
        Column("paused", Integer, nullable=False),
        Column("next_due", _TIME),
        Column("look_at", _TIME),
        Column("progress", _JSON, nullable=False),
        Column("version", Integer, nullable=False),
        Column("changed", _TIME, nullable=False),
        Column("changed_by", _NAME, nullable=False),
    ]


def _loads() -> list[Column[Any]]:
    """`batch`, `finished_at`, `stored`, `skipped` are of the load, or of the batch of a stream, that was finished last.

    `token` names the run that has the load now, until `lease_until` unless it shows a sign of life; NULL: none has.
    The columns from `messages` on are about all of the load; releases before 0.2.0 leave them NULL.
    """
    return [
        Column("load_id", ExactText(MAX_LOAD_ID_BYTES), primary_key=True),
        Column("is_stream", Integer, nullable=False),
        Column("batch", BigInteger),
        Column("token", ExactText(TOKEN_LENGTH)),
        Column("host", ExactText(255), nullable=False),
        Column("pid", Integer, nullable=False),
        Column("place", ExactText(255)),
        Column("process_started", BigInteger),
        Column("began", _TIME, nullable=False),
        Column("heartbeat", _TIME, nullable=False),
        Column("lease_until", _TIME, nullable=False),
        Column("finished_at", _TIME),
        Column("stored", BigInteger),
        Column("skipped", BigInteger),
        Column("messages", BigInteger),
        Column("rejected", BigInteger),
        Column("first_due", _TIME),
        Column("last_due", _TIME),
        Column("cancelled_at", _TIME),
        Column("cancelled_by", _NAME),
    ]


def _load_changes() -> list[Column[Any]]:
    return [
        Column("load_number", Integer, primary_key=True, autoincrement=False),
        Column("change_id", ExactText(36), primary_key=True),
        Column("action", ExactText(20), nullable=False),
        Column("messages", BigInteger, nullable=False),
    ]


_OURS: Final = frozenset({"message_id", "destination", "due_time", "next_attempt"})
"""Columns that every version of a table of waiting messages has."""
_ENDING: Final = default_table_name("")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointTable:
    """A table in which messages wait.

    `schema` None: the connection's own. `version`: of the schema's versions the one it has; None: this user may not see
    it.
    """

    table: str
    schema: str | None
    version: str | None

    @property
    def endpoint(self) -> str | None:
        """The endpoint that it is named after; None: its name is another one, and any endpoint may use it."""
        return self.table.removesuffix(_ENDING) if self.table.endswith(_ENDING) and self.table != _ENDING else None

    @property
    def is_older(self) -> bool:
        """Whether `delaystore setup` would upgrade it."""
        return self.version is not None and self.version < HEAD

    @property
    def is_newer(self) -> bool:
        """Whether a later release has upgraded it, so that this one must be upgraded, too."""
        return self.version is not None and self.version > HEAD


def endpoint_tables(engine: Engine, schema: str | None = None) -> Sequence[EndpointTable]:
    """The tables of waiting messages in `schema` (None: the connection's own), by name; those of tests are left out.

    Raises StoreUnavailableError, StorePermissionError, StoreError.
    """
    with translated_errors(), engine.connect() as connection:
        return sorted(_found(connection, schema), key=lambda found: found.table)


def schema_names(engine: Engine) -> Sequence[str]:
    """The schemas of the database (MariaDB and MySQL: all databases of the server); raises as `endpoint_tables`."""
    with translated_errors(), engine.connect() as connection:
        return sorted(inspect(connection).get_schema_names())


def version_of(engine: Engine, table: Table) -> str | None:
    """The version of a store's tables as they are; None: there are none. Raises as `endpoint_tables`."""
    with translated_errors(), engine.connect() as connection:
        return current_version(connection, table)


def _found(connection: Connection, schema: str | None) -> Iterator[EndpointTable]:
    inspector = inspect(connection)
    names = inspector.get_table_names(schema=schema)
    known = set(names)
    for name in names:
        table = Table(name, MetaData(), schema=schema)
        if version_table_name(table) not in known or name.lower().endswith(TEST_CLOCK):
            continue
        try:
            columns = {column["name"] for column in inspector.get_columns(name, schema=schema)}
            if columns >= _OURS and (version := current_version(connection, table)) is not None:
                yield EndpointTable(table=name, schema=schema, version=version)
        except NoSuchTableError:  # it was dropped just now
            continue
        except DBAPIError as error:
            if fault_of(error) is not Fault.PERMISSION:
                raise
            connection.rollback()
            yield EndpointTable(table=name, schema=schema, version=None)
