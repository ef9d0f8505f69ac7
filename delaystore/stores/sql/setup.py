"""The schema's versions, by Alembic: one version table per endpoint's table."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import Column, Connection, String, Table, func, inspect, select
from sqlalchemy.schema import DropTable

from delaystore.errors import StoreSetupError
from delaystore.stores.sql.dialects import STORE_DIALECTS, Claiming, StoreDialect, store_dialect_of
from delaystore.stores.sql.faults import quoted_table
from delaystore.stores.sql.urls import (
    derived_name,
    history_partition_name,
    is_history_partition,
    is_load_table,
    is_partition,
    loads_table_name,
    operating_table_names,
    partitions_table_name,
)

if TYPE_CHECKING:
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
OPERABLE: Final = "0004"
"""The first version with the tables of what operators and dispatchers note."""
AUDITED: Final = "0005"
"""The first version whose audit trail has a column for each field of an entry."""
LOADED: Final = "0006"
"""The first version whose messages have a latest delivery time and a load, and whose operations have a shift."""
HISTORIC: Final = "0007"
"""The first version with a history."""
SCHEDULED: Final = "0008"
"""The first version with schedules."""
HEAD: Final = max(path.name[1:5] for path in _MIGRATIONS.glob("versions/v*.py"))
"""The version this release works with, of the newest migration, vNNNN_*.py."""


def version_table_name(table: Table) -> str:
    """The name of the table that remembers the version of `table`."""
    return f"{table.name}_version"


def current_version(connection: Connection, table: Table) -> str | None:
    """The version of the tables as they are; None where there are none."""
    versions = version_table(table)
    if not store_dialect_of(connection).has_table(connection, versions):
        return None
    return connection.execute(select(versions.c.version_num)).scalar()


def upgrade(connection: Connection, table: Table, dialect: StoreDialect, *, lock_wait: float | None = None) -> bool:
    """Create or upgrade the tables; False: there was nothing to do. The caller commits.

    `lock_wait`: seconds to wait for a lock; None: as long as it takes.
    Raises StoreSetupError for tables of a release newer than this one.
    """
    if is_current(connection, table):
        return False
    missing = missing_schema(connection, table, dialect)
    if missing is not None:
        raise StoreSetupError(missing)
    connection.rollback()
    limit = nullcontext() if lock_wait is None else dialect.lock_wait(connection, lock_wait)
    with limit, dialect.setup_lock(connection, table.fullname):
        if is_current(connection, table):
            return False
        _migrate(connection, table, dialect)
        return True


def missing_schema(connection: Connection, table: Table, dialect: StoreDialect) -> str | None:
    """That the schema of `table`, or the connection's own, does not exist, and the remedy; None: it exists."""
    if table.schema is None and connection.dialect.default_schema_name is None:
        return (
            "there is no schema for the store's tables; create one with CREATE SCHEMA, or name one that this role may "
            "use with --schema or schema=, or in its search_path"
        )
    if table.schema is None or inspect(connection).has_schema(table.schema):
        return None
    if dialect.is_file:
        return f"the schema {table.schema!r} does not exist; a SQLite file has no schemas, so leave it out"
    name = connection.dialect.identifier_preparer.quote(str(table.schema))
    return f"the schema {table.schema!r} does not exist; create it with CREATE SCHEMA {name}, or correct its name"


class KnownVersion:
    """The version of the tables of one store, asked for again only while they are older than this release's."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._version: str | None = None

    def is_from(self, first: str, connection: Connection) -> bool:
        """Whether the tables are of the version `first` or a later one."""
        if self._version is None or self._version < HEAD:
            self._version = current_version(connection, self._table)
        return self._version is not None and self._version >= first

    def require_latest_deliveries(self, connection: Connection) -> None:
        """Raise StoreSetupError where the tables keep no latest delivery.

        To be called before a statement that names the column: where it is unknown, PostgreSQL would undo all that the
        caller's transaction has done.
        """
        if not self.is_from(LOADED, connection) and self._version is not None:
            raise StoreSetupError(
                "the message cannot be stored, because the store's tables are of an earlier release, which keeps no "
                "latest delivery; run `delaystore setup`, or send without not_after and max_late"
            )


def remove(connection: Connection, table: Table) -> None:
    """Drop the tables, those of bulk loads too, with all that waits in them. The caller commits."""
    _drop(connection, _existing(connection, table))


def remove_if_empty(connection: Connection, table: Table, dialect: StoreDialect, *, lock_wait: float) -> int:
    """Drop the tables unless messages wait; returns how many do. The caller commits.

    No session stores anything between the look and the drop: one that tries waits, and then finds no table.
    `lock_wait`: seconds to wait for transactions that use the tables; others wait behind them meanwhile.
    """
    with dialect.lock_wait(connection, lock_wait), dialect.setup_lock(connection, table.fullname):
        tables = _existing(connection, table)
        if not tables:
            return 0
        with dialect.locked_tables(connection, tables):
            waits = any(each.name == table.name for each in tables)
            waiting = connection.execute(select(func.count()).select_from(table)).scalar_one() if waits else 0
            if not waiting:
                _drop(connection, tables)
            return waiting


def load_tables(connection: Connection, table: Table) -> list[str]:
    """The names of the tables in which bulk loads into `table` are staged, or that they left behind."""
    names, dialect = inspect(connection).get_table_names(schema=table.schema), store_dialect_of(connection)
    return [name for name in names if is_load_table(name, table.name, dialect)]


def partition_tables(connection: Connection, table: Table) -> list[str]:
    """The names of the partitions of `table`."""
    names, dialect = inspect(connection).get_table_names(schema=table.schema), store_dialect_of(connection)
    return [name for name in names if is_partition(name, table.name, dialect)]


def _existing(connection: Connection, table: Table) -> list[Table]:
    """The tables that there are, in the order in which to drop them.

    The table that remembers finished loads goes first: it must not outlive the messages.
    """
    dialect, inspector = store_dialect_of(connection), inspect(connection)
    loads, partitions = loads_table_name(table.name, dialect), partitions_table_name(table.name, dialect)
    made = (*load_tables(connection, table), *partition_tables(connection, table))
    operating = operating_table_names(table.name, dialect)
    names = (loads, *made, partitions, *operating, table.name, version_table_name(table))
    return [quoted_table(name, table.schema) for name in names if inspector.has_table(name, schema=table.schema)]


def _drop(connection: Connection, tables: Iterable[Table]) -> None:
    for each in tables:
        connection.execute(DropTable(each, if_exists=True))


def leave_delaystore_alone(
    *endpoints: str, tables: tuple[str, ...] = ()
) -> Callable[[Any, str | None, str, bool, Any], bool]:
    """Make an `include_object` for your own Alembic env.py, so that autogenerate does not drop delaystore's tables.

    Tables of SQL queues (`NAME_queue`) are left alone too.

    Args:
        *endpoints: Endpoints whose tables have default names.
        tables: The tables of stores that were given one.

    Returns:
        The function for `context.configure`.

    Example:
        ```python
        context.configure(..., include_object=leave_delaystore_alone("sales", "billing"))
        ```

    """
    stores = {f"{endpoint}_delayed" for endpoint in endpoints} | set(tables)
    ours = stores | {f"{name}_version" for name in stores}
    for database in STORE_DIALECTS.values():
        ours |= {derived(name, database) for name in stores for derived in (loads_table_name, partitions_table_name)}
        ours.update(*(operating_table_names(name, database) for name in stores))

    def include_object(
        item: Any, name: str | None, type_: Literal["table"] | str, reflected: bool, compare_to: Any
    ) -> bool:
        table_name = name if type_ == "table" else getattr(getattr(item, "table", None), "name", None)
        is_queue = str(table_name).endswith("_queue") and reflected and compare_to is None
        return table_name not in ours and not is_queue and not is_made(str(table_name))

    def is_made(name: str) -> bool:
        """Whether it is a table of a bulk load, or a partition."""
        return any(
            is_load_table(name, table, database)
            or is_partition(name, table, database)
            or is_history_partition(name, table, database)
            for table in stores
            for database in STORE_DIALECTS.values()
        )

    return include_object


def is_current(connection: Connection, table: Table) -> bool:
    """Whether the tables are those of this release; raises StoreSetupError for those of a newer one."""
    version = current_version(connection, table)
    if version is None or version == HEAD:
        return version == HEAD
    if version in {script.revision for script in _scripts().walk_revisions()}:
        return False
    raise StoreSetupError(
        f"the table {table.name!r} has schema version {version}, which this release does not know; upgrade delaystore"
    )


def make_again(connection: Connection, table: Table, dialect: StoreDialect) -> None:
    """Make missing parts of the tables, of any version: each migration makes only missing parts.

    Within `setup_lock`; the caller commits.
    """
    with _operations(connection, table, dialect):
        for script in reversed(list(_scripts().walk_revisions())):
            script.module.upgrade()


def _migrate(connection: Connection, table: Table, dialect: StoreDialect) -> None:
    with _operations(connection, table, dialect) as context:
        context.run_migrations()


@contextmanager
def _operations(connection: Connection, table: Table, dialect: StoreDialect) -> Iterator["MigrationContext"]:
    """What migrations need, for the block."""
    from alembic.migration import MigrationContext  # a third of a second, which only a change of the schema needs
    from alembic.operations import Operations

    def alter_partitions() -> None:
        if dialect.bulk is not None:
            dialect.bulk.alter_partitions(connection, table, partition_tables(connection, table))

    scripts = _scripts()
    options = {
        "version_table": version_table_name(table),
        "version_table_schema": table.schema,
        "fn": lambda revision, _context: scripts._upgrade_revs("head", revision),
        "delaystore_table": table.name,
        "delaystore_schema": table.schema,
        "delaystore_leases": dialect.claiming is Claiming.LEASES,
        "delaystore_shelves": partitions_table_name(table.name, dialect) if dialect.bulk is not None else None,
        "delaystore_opening": None if dialect.bulk is None else dialect.bulk.open_to_senders,
        "delaystore_beside": operating_table_names(table.name, dialect)[:5],  # those of version 0004
        "delaystore_loads": loads_table_name(table.name, dialect),
        "delaystore_loads_number": derived_name(table.name, "_loads_number", dialect),
        "delaystore_load_changes": operating_table_names(table.name, dialect)[5],
        "delaystore_history": operating_table_names(table.name, dialect)[6:8],
        "delaystore_schedules": operating_table_names(table.name, dialect)[8],
        "delaystore_history_columns": dialect.history_columns(),
        "delaystore_history_options": dialect.history_options,
        "delaystore_make_history": dialect.make_history,
        "delaystore_history_partition": partial(history_partition_name, table.name, dialect=dialect),
        "delaystore_derived": lambda suffix: derived_name(table.name, suffix, dialect),
        "delaystore_began": derived_name(table.name, "_operations_began", dialect),
        "delaystore_opening_to_operators": dialect.open_to_operators,
        "delaystore_partial_indexes": not dialect.failing_columns(),
        "delaystore_alter_shelves": alter_partitions,
        "delaystore_alter": dialect.alter_with_short_locks,
        "delaystore_storage_options": [*dialect.time_checks(), *dialect.storage_options()],
    }
    context = MigrationContext.configure(connection, opts=options)
    with Operations.context(context):
        yield context


def _scripts() -> "ScriptDirectory":
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(_MIGRATIONS))


def version_table(table: Table) -> Table:
    """The table that remembers the version of `table`."""
    return quoted_table(version_table_name(table), table.schema, Column("version_num", String(32)))
