"""Which endpoints a database holds: tables of waiting messages, each with a version table of delaystore's beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, MetaData, Table, inspect
from sqlalchemy.exc import DBAPIError, NoSuchTableError

from delaystore.sql.dialects import fault_of
from delaystore.sql.errors import translated_errors
from delaystore.sql.faults import Fault
from delaystore.sql.names import TEST_CLOCK, default_table_name
from delaystore.stores.sql.setup import HEAD, current_version, version_table_name

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
