"""The SQL store: each call in a transaction of its own, or in one that you open."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import sha256
from math import inf
from typing import Any, ClassVar, Final, Self

from sqlalchemy import URL, Connection, Engine, Table
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from delaystore.clock import Clock
from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    KeyInUseError,
    MessageBeingDispatchedError,
    StoreError,
    StoreSetupError,
    StoreUnavailableError,
)
from delaystore.message import KEY_TIMEOUT, DelayedMessage, KeyRule, Position
from delaystore.settings import TransactionMode, check_lease
from delaystore.stores.abc import REJECT, Page, StoreStatus, WakeUpCallback, WakeUpSubscription
from delaystore.stores.operable import AuditedKeyedStore
from delaystore.stores.records import Change, Ending
from delaystore.stores.shared import ClaimsInBatches, in_transaction, without_keys
from delaystore.stores.sql import comparison, setup
from delaystore.stores.sql._claims import DueScan, Leases
from delaystore.stores.sql._enlisted import EnlistedSqlStore, SameDatabase
from delaystore.stores.sql._history import NewEntries
from delaystore.stores.sql._keyed import AnswerT, Duplicate, Messages, decided, keyed_of
from delaystore.stores.sql._listener import PostgreSqlListener, payload_of
from delaystore.stores.sql._parts import DatabaseClock, KnownHistory, StoreClock, StoreParts, SuppliedClock
from delaystore.stores.sql._statements import statements_of
from delaystore.stores.sql.bound import AT_ONCE, NOTIFY_WITHIN, BoundSqlStore
from delaystore.stores.sql.bulk_partitions import BulkPartitions, PartitionLimits, PartitionManager
from delaystore.stores.sql.dialects import store_dialect_of
from delaystore.stores.sql.drivers import driver_of
from delaystore.stores.sql.engine import Connections, check_blocking, create_store_engine, dispose
from delaystore.stores.sql.errors import configuration_errors, translated_errors
from delaystore.stores.sql.faults import Fault
from delaystore.stores.sql.operating.store import OperableSqlStore
from delaystore.stores.sql.rows import MessageRows
from delaystore.stores.sql.targets import DriverConnectionAdapter, target_of
from delaystore.stores.sql.urls import (
    check_identifier,
    check_table_name,
    database_url,
    default_table_name,
    timed_table_name,
    url_label,
)

_SHORT_WAIT: Final = 5.0
"""Seconds to wait for a lock that our own caller may have."""
_NO_SETUP_ON_SECOND_CONNECTION: Final = (
    "the store's tables are missing, and cannot be made while your transaction is open; call "
    "setup_infrastructure() when your program starts"
)


class SqlDelayedMessageStore(ClaimsInBatches, OperableSqlStore, AuditedKeyedStore):
    """Messages in a table of PostgreSQL, MariaDB, MySQL or SQLite.

    It connects when it is first used. A store with a `clock` keeps its messages in a table of its own,
    `<table>_test_clock`, which no store without one takes: dispatchers by different clocks share no table.

    Args:
        database: A SQLAlchemy URL, or your Engine (which `close` leaves open).
        schema: The table's schema; None: the connection's own.
        table: The table's name; None: `<endpoint>_delayed`.
        lease: How long a claim outlives a crashed dispatcher where the database has no row locks (SQLite); with row
            locks the database ends it at once.
        clock: For tests, which set it; None: the database's clock.

    Raises:
        ConfigurationError: The URL, Engine, schema, table or lease cannot work.
        MissingDependencyError: The database's driver is not installed.

    Example:
        ```python
        store = SqlDelayedMessageStore("postgresql://user:password@db/app")
        with DelayedDelivery("sales", store) as delivery:
            delivery.send("billing", b"{}", delay=3600)
        ```

    """

    keeps_not_after: ClassVar[bool] = True
    partition_limits: ClassVar = PartitionLimits()
    """When messages that are stored at once get a partition."""
    key_timeout: ClassVar = KEY_TIMEOUT
    """Seconds for which a message waits to be stored while another transaction has the message of its key."""

    def __init__(
        self,
        database: str | URL | Engine,
        *,
        schema: str | None = None,
        table: str | None = None,
        lease: timedelta = timedelta(seconds=60),
        clock: Clock | None = None,
    ) -> None:
        if isinstance(database, str | URL):
            with configuration_errors():
                store_dialect_of(database_url(database))  # before its driver is looked for
        else:
            check_blocking(database)
        engine = database if isinstance(database, Engine) else create_store_engine(database)
        owns_engine = not isinstance(database, Engine)
        self._open(engine, owns_engine=owns_engine, schema=schema, table=table, lease=lease, clock=clock)

    @classmethod
    def in_greenlets(cls, engine: Engine, *, owns_engine: bool, **options: Any) -> Self:
        """A store on the `sync_engine` of an AsyncEngine: each call must be made in one of SQLAlchemy's greenlets.

        Args:
            engine: The synchronous side of the AsyncEngine.
            owns_engine: Whether the engine was made for the store, which may close it.
            options: `schema`, `table`, `lease` and `clock`, as those of the constructor.

        """
        store = cls.__new__(cls)
        store._open(engine, owns_engine=owns_engine, **options)
        return store

    def _open(
        self,
        engine: Engine,
        *,
        owns_engine: bool,
        schema: str | None,
        table: str | None,
        lease: timedelta,
        clock: Clock | None,
    ) -> None:
        self.engine, self._owns_engine = engine, owns_engine
        self._dialect = store_dialect_of(self.engine)
        self._dialect.check_driver(self.engine.driver)
        if self._owns_engine:
            self._dialect.end_idle_sessions(self.engine)
        if schema is not None:
            check_identifier(schema, self._dialect, "the schema name")
        if table is not None:
            check_table_name(table, self._dialect)
        self._schema, self._table_name, self._lease = schema, table, check_lease(lease)
        self._clock = clock
        self._endpoint: str | None = None
        self._parts_or_none: StoreParts | None = None
        self._token = Leases.new_token()
        isolation, single = self._dialect.transaction_isolation, self._dialect.single_statement_isolation
        default = driver_of(self.engine).default_isolation(single, isolation) if self._owns_engine else None
        self._transactions = Connections(self.engine, None if default == isolation else isolation)
        self._singles = Connections(self.engine, None if default == single else single) if single else None
        self._adapter = DriverConnectionAdapter(self.engine)

    def __repr__(self) -> str:
        return f"SqlDelayedMessageStore({url_label(self.engine.url)}, endpoint={self._endpoint!r})"

    @override
    def initialize(self, endpoint: str, mode: TransactionMode) -> None:
        """Name the table; connects to nothing. Honours every mode, TRANSACTION_SCOPE with a SQL queue."""
        TransactionMode(mode)
        if not isinstance(endpoint, str) or not endpoint.strip():
            raise ConfigurationError("the endpoint name is empty; give the endpoint a name")
        if self._endpoint is not None:
            if endpoint != self._endpoint:
                raise ConfigurationError(
                    f"this store is bound to endpoint {self._endpoint!r}, not {endpoint!r}; make a store for each"
                )
            return
        name = self._table_name or default_table_name(endpoint)
        name = timed_table_name(name, self._dialect, by_test_clock=self._clock is not None)
        statements = statements_of(name, self._schema, self._dialect)
        table = statements.table
        version = setup.KnownVersion(table)
        self._parts_or_none = StoreParts(
            dialect=self._dialect,
            statements=statements,
            scan=DueScan() if self._clock is None else DueScan(lambda: inf),  # a test's time jumps: spare no search
            clock=self._store_clock(),
            channel="delaystore_" + sha256(table.fullname.encode()).hexdigest()[:40],
            lease=self._lease,
            keyed=keyed_of(statements, self.key_timeout),
            version=version,
            history=KnownHistory(statements.operating_tables, self._dialect, version),
        )
        self._endpoint = endpoint

    def _store_clock(self) -> StoreClock:
        if self._clock is not None:
            return SuppliedClock(self._clock)
        return DatabaseClock(self.engine, self._transactions, self._dialect)

    @cached_property
    def _same_database(self) -> SameDatabase:
        return SameDatabase(self.engine.url, self.table, self._dialect, self._transactions.connect)

    @property
    def partitions(self) -> PartitionManager | None:
        """The bulk partitions beside `table`; None: the database has none."""
        dialect, sql = self._dialect, self._parts.statements
        if dialect.bulk is None or sql.partitions is None:
            return None
        partitioning = BulkPartitions(sql.table, sql.partitions, dialect, dialect.bulk)
        return PartitionManager(partitioning, self._transactions, self.partition_limits)

    @property
    def table(self) -> Table:
        """The table in which messages wait."""
        return self._parts.statements.table

    @override
    def setup_infrastructure(self) -> None:
        """Create or upgrade the tables; a user without this right needs tables that are current.

        Whether tables that are current are whole, is not looked at, so that a start costs little: `repair` does that.

        Raises StoreSetupError for tables of a newer release, StorePermissionError, StoreUnavailableError.
        """
        with translated_errors(), self._transactions.connect() as connection:
            setup.upgrade(connection, self.table, self._dialect)
            connection.commit()

    @override
    def repair(self, tell: Callable[[str], object]) -> Sequence[str]:
        """Make missing tables, columns and indexes, and invalid indexes again, if this user may."""
        with translated_errors(), self._transactions.connect() as connection:
            return [each.text for each in comparison.repair(connection, self.table, self._dialect, tell)]

    @override
    def defects(self) -> Sequence[str]:
        with translated_errors(), self._transactions.connect() as connection:
            return [each.text for each in comparison.defects(connection, self.table, self._dialect)]

    @override
    def blocking_defects(self) -> Sequence[str]:
        """By a few statements about the catalog; none of tables that are of another release."""
        with translated_errors(), self._transactions.connect() as connection:
            return list(comparison.blocking_defects(connection, self.table, self._dialect))

    def remove_infrastructure(self, *, lock_wait: float | None = None) -> None:
        """Drop the tables, with all messages that wait in them.

        Args:
            lock_wait: Seconds to wait for a transaction that uses them; None: as long as the database waits, on
                PostgreSQL without end.

        Raises:
            StoreUnavailableError: The transaction has not ended by then, or the database is not available.
            StorePermissionError: The user may not drop them.

        """
        with translated_errors(), self._transactions.connect() as connection:
            limit = nullcontext() if lock_wait is None else self._dialect.lock_wait(connection, lock_wait)
            try:
                with limit:
                    setup.remove(connection, self._parts.statements.table)
                    connection.commit()
            except DBAPIError as error:
                if self._dialect.fault(error) is not Fault.LOCKED:
                    raise
                raise StoreUnavailableError(
                    f"{self.table.fullname} is in use by a transaction that has not ended; end it, as by closing its "
                    "Session or Connection, and try again"
                ) from None

    def remove_if_empty(self) -> int:
        """Drop the tables unless messages wait in them.

        Returns:
            How many messages wait; 0: the tables are gone.

        Raises:
            StoreUnavailableError: Another transaction uses them.
            StorePermissionError: The user may not drop them.

        """
        with translated_errors(), self._transactions.connect() as connection:
            table = self._parts.statements.table
            waiting = setup.remove_if_empty(connection, table, self._dialect, lock_wait=_SHORT_WAIT)
            connection.commit()
        return waiting

    @override
    def now(self) -> datetime:
        """The database's clock (SQLite: this computer's), carried on between two questions; never ahead of it.

        With a `clock` it is that.
        """
        return self._parts.clock.now()

    @override
    def latest_now(self) -> datetime:
        """The database's clock, carried on between two questions of its own; never behind it."""
        return self._parts.clock.latest_now()

    @override
    def transaction(self) -> AbstractContextManager[BoundSqlStore]:
        """A store bound to one transaction; its `connection` is for what shall be committed with it."""
        return self._bound(self._transactions.connect)

    def enlist(
        self, target: Any, on_end: Callable[[], None] | None = None, *, set_up: bool = False
    ) -> EnlistedSqlStore:
        """The store's interface in the caller's transaction, which the caller commits or rolls back.

        Args:
            target: A Connection or Session of SQLAlchemy, a connection of psycopg 3, sqlite3 or PyMySQL, Django's
                connection, or a Target, each to the store's database.
            on_end: Called after a Session's transaction, committed or not, and after the commit of Django's; the end of
                others is not reported.
            set_up: Create missing tables before anything is written, though not in that transaction.

        Returns:
            The store's interface.

        Raises:
            ConfigurationError: `target` is something else, or of another database, or no transaction is open and the
                driver would begin none.
            StoreSetupError: Tables are missing that cannot be made now.

        """
        with translated_errors():
            opened = target_of(target, self._adapter)
            driver = driver_of(opened.connection)
            if not driver.is_async:  # what is may be enlisted by run_sync, too
                self._adapter.check_side(target, is_async=False)
            driver.repair(opened.connection.connection.dbapi_connection)
            self._same_database.check(opened)
            if set_up and not setup.is_current(opened.connection, self.table):
                self._set_up_on_second_connection(opened.connection)
            return EnlistedSqlStore(self._parts, opened, on_end)

    @override
    def store(self, message: DelayedMessage) -> None:
        """One statement, one round trip where the database allows; see the contract."""
        if message.key is not None:
            self.store_keyed(message, REJECT)
            return
        try:
            self._insert(message)  # first without a deadline: preparing to wait for dispatchers slows each send down
        except (DuplicateMessageError, MessageBeingDispatchedError) as error:
            taken = error if isinstance(error, DuplicateMessageError) else None
            self._unless_claimed(lambda: self._insert(message), taken=taken)

    def _insert(self, message: DelayedMessage) -> None:
        if self._singles is None or not self._store_alone(message, self._singles):
            with self._one_call() as bound:
                bound.insert(message)

    def _unless_claimed(
        self, write: Callable[[], AnswerT], messages: Messages | None = None, taken: DuplicateMessageError | None = None
    ) -> AnswerT:
        """The result of `write`, which has a transaction of its own; made again while a dispatcher has the message."""
        return decided(write, self._refusal, self.key_timeout, messages, taken)

    def _refusal(self, error: Duplicate) -> StoreError | None:
        """Committed: marks stay, and no lock is left."""
        with self._one_call() as bound:
            return bound.refusal(error)

    @override
    def store_keyed(self, message: DelayedMessage, rule: KeyRule, *, change: Change | None = None) -> str:
        """One transaction, made again while another transaction has the message of the key, or after a deadlock."""

        def attempt() -> str:
            placed = None if change is not None else self._place_alone(message, rule)
            if placed is not None:
                return placed
            with self._one_call() as bound, self._conflicts_as_use(message):
                return bound.place(message, rule, change)

        return self._unless_claimed(attempt)

    @contextmanager
    def _conflicts_as_use(self, *first: DelayedMessage) -> Iterator[None]:
        """Raise the error of a claimed message for a deadlock, so that messages, the `first` among them, are stored
        again.
        """
        try:
            yield
        except DBAPIError as error:
            if self._dialect.fault(error) is not Fault.CONFLICT:
                raise
            if first[0].key is not None:
                raise KeyInUseError(first[0].key) from None
            raise MessageBeingDispatchedError([first[0].message_id]) from None

    # a claim by row lock ends with its call, so dispatchers claim inside `transaction()`
    message_id_of = in_transaction(BoundSqlStore.message_id_of, opened_by="_one_call")
    fetch_batch = in_transaction(BoundSqlStore.fetch_batch, opened_by="_one_call")
    remove_many = in_transaction(BoundSqlStore.remove_many, opened_by="_one_call")
    remove_ended = in_transaction(BoundSqlStore.remove_ended, opened_by="_one_call")
    increment_failure_count = in_transaction(BoundSqlStore.increment_failure_count, opened_by="_one_call")
    increment_failure_counts = in_transaction(BoundSqlStore.increment_failure_counts, opened_by="_one_call")
    count_failures = in_transaction(BoundSqlStore.count_failures, opened_by="_one_call")
    park_claimed = in_transaction(BoundSqlStore.park_claimed, opened_by="_one_call")
    postpone = in_transaction(BoundSqlStore.postpone, opened_by="_one_call")
    promised = in_transaction(BoundSqlStore.promised, opened_by="_one_call")
    next = in_transaction(BoundSqlStore.next, opened_by="_glancing")
    get = in_transaction(BoundSqlStore.get, opened_by="_one_call")
    get_many = in_transaction(BoundSqlStore.get_many, opened_by="_looking_up")
    waiting_ids = in_transaction(BoundSqlStore.waiting_ids, opened_by="_looking_up")
    get_unclaimed = in_transaction(BoundSqlStore.get_unclaimed, opened_by="_looking_up")
    message_ids = in_transaction(BoundSqlStore.message_ids, opened_by="_looking_up")
    count = in_transaction(BoundSqlStore.count, opened_by="_one_call")
    estimate_count = in_transaction(BoundSqlStore.estimate_count, opened_by="_looking_up")
    sizes = in_transaction(BoundSqlStore.sizes, opened_by="_one_call")
    count_by_due_time = in_transaction(BoundSqlStore.count_by_due_time, opened_by="_one_call")
    cancel = in_transaction(BoundSqlStore.cancel, opened_by="_one_call")
    reschedule = in_transaction(BoundSqlStore.reschedule, opened_by="_one_call")
    shift = in_transaction(BoundSqlStore.shift, opened_by="_one_call")
    note_changes = in_transaction(BoundSqlStore.note_changes, opened_by="_one_call")

    @override
    def store_many(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> int:
        """All or none, in one transaction; PostgreSQL: by COPY, many of them as a partition beside a large table.

        Keeps few messages of a generator in memory: 20,000, or 64 MiB, at most; and those with a key, which come last,
        and are in no partition. A generator of more is not stored again where a dispatcher has a message of one of its
        ids: it raises MessageBeingDispatchedError at once.
        """
        all_of_them = Messages(messages, max(AT_ONCE, self.partition_limits.fewest_rows))

        def write() -> int:
            partitions = self._partitions_for(len(all_of_them.first))
            with translated_errors():
                fewest = None if partitions is None else partitions.fewest_rows()
            if partitions is not None and fewest is not None:
                return self._store_in_partition(partitions, all_of_them, fewest, rule, change)
            with self._one_call() as bound:
                return bound.store_many_alone(all_of_them, rule, change)

        return self._unless_claimed(write, all_of_them)

    @override
    def store_new(
        self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT, *, change: Change | None = None
    ) -> Mapping[str, str]:
        """In one transaction; never as a partition."""
        all_of_them = Messages(messages, AT_ONCE)

        def write() -> Mapping[str, str]:
            with self._one_call() as bound, self._conflicts_as_use(*all_of_them.first[:1]):
                return bound.place_new(all_of_them, rule, change, alone=True)

        return self._unless_claimed(write, all_of_them)

    @override
    def status(self) -> StoreStatus:
        """As in the contract; it does not read messages that wait behind the first 1000 and have not failed."""
        with self._glancing() as bound:
            status = bound.status()
        failing = self.first_due_of_failing() if self.is_operable else None
        known = [time for time in (status.first_due, failing) if time is not None]
        return replace(status, first_due=min(known, default=None))

    @override
    def list(
        self,
        *,
        destination: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        limit: int = 100,
    ) -> Page:
        """By an index, so that a page costs as much wherever it begins.

        With `destination` the database reads waiting messages until the page is full: all of it where few match.
        """
        looking = self._looking_up() if destination is None else self._one_call()  # which plan is good depends
        with looking as bound:
            return bound.list(destination=destination, since=since, until=until, after=after, limit=limit)

    @override
    def subscribe(self, on_wake_up: WakeUpCallback) -> WakeUpSubscription | None:
        """PostgreSQL: by LISTEN; the others cannot."""
        if self._dialect.notifications is None:
            return None
        return PostgreSqlListener(self.engine, self._parts.channel, on_wake_up)

    @override
    def clean_up(self) -> None:
        """Drop partitions that are empty, or that were never attached; make and drop those of the history."""
        partitions = self.partitions
        if partitions is not None:
            with translated_errors():
                partitions.clean_up()
        self.partition_history()

    @override
    def close(self) -> None:
        """Close the connections, unless the Engine is yours."""
        if self._owns_engine:
            dispose(self.engine)

    @property
    def _parts(self) -> StoreParts:
        if self._parts_or_none is None:
            raise ConfigurationError("the store is not initialized; call initialize(endpoint, mode) first")
        return self._parts_or_none

    def _set_up_on_second_connection(self, enlisted: Connection) -> None:
        """Set up although a caller's transaction is open, and perhaps has the pool's last connection."""
        if not self._dialect.allows_setup_on_second_connection(enlisted):
            raise StoreSetupError(_NO_SETUP_ON_SECOND_CONNECTION)
        try:
            with self._transactions.connect_unpooled() as connection:
                setup.upgrade(connection, self.table, self._dialect, lock_wait=_SHORT_WAIT)
                connection.commit()
        except DBAPIError as error:
            if self._dialect.fault(error) is not Fault.LOCKED:
                raise
            raise StoreSetupError(_NO_SETUP_ON_SECOND_CONNECTION) from None

    def _store_alone(self, message: DelayedMessage, singles: Connections) -> bool:
        """Store by one statement; False: nothing is stored, for its isolation level is the database's default."""
        parts = self._parts
        soon = message.next_attempt <= self.now() + NOTIFY_WITHIN
        wake = payload_of(message.next_attempt) if soon else None

        def insert(connection: Connection) -> bool:
            parts.insert_alone(connection, message, wake)
            parts.scan.search_from_beginning(message.next_attempt)
            return True

        return self._by_one_statement(singles, insert) is not None

    def _place_alone(self, message: DelayedMessage, rule: KeyRule) -> str | None:
        """The message that has the key, placed by one statement; None: nothing is placed, for it takes a transaction.

        So it does where dispatchers are to be woken, or may be: a bound can make any message due soon.
        """
        parts, singles = self._parts, self._singles
        if singles is None or rule.max_wait is not None:
            return None
        now = self.now()  # before a connection is taken: it may need one itself
        is_noted = rule.replaces and parts.history.known
        if message.next_attempt <= now + NOTIFY_WITHIN or is_noted is None:
            return None
        entries = NewEntries(parts.statements.entries, Ending.REPLACED, now) if is_noted else None

        def place(connection: Connection) -> str:
            placed = parts.keyed_in(connection, message).place(connection, message, rule, now, entries, alone=True)
            if placed.message_id == message.message_id:
                parts.scan.search_from_beginning(placed.next_attempt)
            return placed.message_id

        return self._by_one_statement(singles, place)

    def _by_one_statement(self, singles: Connections, write: Callable[[Connection], AnswerT]) -> AnswerT | None:
        """The result of `write`; None: nothing is written, as it takes a transaction.

        The isolation level is the database's default: under `serializable` a statement may fail that waits under READ
        COMMITTED. A session that hides warnings shows them in transactions.
        """
        with translated_errors(), singles.connect() as connection:
            if not self._dialect.watch_commit(connection, alone=True):
                return None
            try:
                answer = write(connection)
            except DBAPIError as error:
                if self._dialect.fault(error) is not Fault.CONFLICT:
                    raise
                return None
            self._dialect.check_commit(connection)
        return answer

    def _partitions_for(self, rows: int) -> PartitionManager | None:
        """None: the database has no partitions, or there may be no more than `rows`, too few for any."""
        return self.partitions if rows >= self.partition_limits.fewest_rows else None

    def _store_in_partition(
        self,
        partitions: PartitionManager,
        messages: Iterable[DelayedMessage],
        fewest: int,
        rule: KeyRule,
        change: Change | None,
    ) -> int:
        keyed: list[DelayedMessage] = []
        rows = MessageRows(without_keys(messages, keyed), self._parts.version.require_latest_deliveries)

        def fill(connection: Connection, table: Table) -> int:
            return self._dialect.insert_many(connection, table, None, rows)

        with (
            translated_errors(),
            partitions.filled(fill, fewest) as partition,
            self._on(partition.connection) as bound,
        ):
            placed: list[int] = []
            partition.move_in(bound.connection, lambda: placed.append(bound.place_many(keyed, rule, change)))
            bound.stored(rows.earliest)
            return partition.rows + sum(placed)

    def _on(self, connection: Connection) -> AbstractContextManager[BoundSqlStore]:
        """A transaction for one call on a connection that we have: to wait for a second one could exhaust a pool."""
        return self._bound(lambda: nullcontext(connection), self._token)

    def _one_call(self, connections: Connections | None = None) -> AbstractContextManager[BoundSqlStore]:
        """A transaction for one call; where claims are leases, they outlive it and belong to this store.

        All threads that use the store are then one claimer; each block of `transaction()` is another.
        """
        return self._bound((connections or self._transactions).connect, self._token)

    @contextmanager
    def _looking_up(self) -> Iterator[BoundSqlStore]:
        """A transaction for one call that finds rows by index, independent of statistics."""
        with self._one_call() as bound, translated_errors():
            self._dialect.prefer_indexes(bound.connection)
            yield bound

    def _glancing(self) -> AbstractContextManager[BoundSqlStore]:
        """To read the first messages: one statement, which finds the beginning by index in any case.

        Only behind a position does a plan go by statistics.
        """
        from_beginning = self._parts.scan.start() is None
        return self._one_call(self._singles) if from_beginning else self._looking_up()

    @contextmanager
    def _bound(
        self, connect: Callable[[], AbstractContextManager[Connection]], token: str | None = None
    ) -> Iterator[BoundSqlStore]:
        """A store bound to a transaction on the connection that `connect` returns.

        `token`: whose its leases are; None: they end with the transaction. Without a `token` a commit that may not be
        on the standby is only logged: its changes are made.
        """
        parts = self._parts
        with translated_errors(), connect() as connection:
            self._dialect.watch_commit(connection)
            bound = BoundSqlStore(parts, connection, parts.claims(lambda: connection, committing=True, token=token))
            try:
                yield bound
                bound.before_commit()
                # If the process dies before this commit, the messages wait as before. If it dies right after, they are
                # removed: a dispatcher's are at their destination by then, as it removes only confirmed messages.
                connection.commit()
            except BaseException:
                connection.rollback()
                bound.rolled_back()
                raise
            finally:
                try:
                    if token is None:
                        bound.release()
                finally:
                    # After the release, so that the search from the beginning finds the rows free.
                    bound.after_end()
            if token is not None:
                self._dialect.check_commit(connection)
