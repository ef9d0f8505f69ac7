"""`delaystore endpoints`."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.cli._options import Json, Schema, StoreUrl, environment_option
from delaystore.cli._output import about, print_document, print_table, say, tell
from delaystore.cli._store_report import Patience
from delaystore.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from delaystore.stores.abc import Count
    from delaystore.stores.sql import SqlDelayedMessageStore
    from delaystore.stores.sql.catalog import EndpointTable


def endpoints(
    all_schemas: Annotated[
        bool,
        environment_option("--all-schemas", "Look into every schema (MariaDB, MySQL: database).", group="endpoints"),
    ] = False,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long each answer of the database may take.")
    ] = "5s",
    store: StoreUrl = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """List the endpoints of a database.

    What waits, live dispatchers, and whether tables need an upgrade. A "?" is what the database does not tell in time,
    or to this user. Creates no table and no file.
    """
    report_endpoints(store, schema, timeout, all_schemas=all_schemas, as_json=as_json)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of a database. `waiting` None: not known in time; `dispatchers` None: also of an earlier release."""

    found: "EndpointTable"
    waiting: "Count | None" = None
    dispatchers: int | None = None

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "endpoint": self.found.endpoint,
            "table": self.found.table,
            "schema": self.found.schema,
            "version": self.found.version,
            "upgrade_needed": self.found.is_older,
            "newer": self.found.is_newer,
            "waiting": None if self.waiting is None else self.waiting.messages,
            "exact": None if self.waiting is None else self.waiting.exact,
            "dispatchers": self.dispatchers,
        }

    def row(self) -> tuple[str, ...]:
        """The same for people; the schema is the first cell."""
        waiting = "?" if self.waiting is None else about(self.waiting).partition(" (")[0]
        dispatchers = "?" if self.dispatchers is None else f"{self.dispatchers:,}"
        return (self.found.schema or "", self._name, waiting, dispatchers, self._state)

    @property
    def _name(self) -> str:
        return self.found.endpoint or f"--table {self.found.table}"

    @property
    def _state(self) -> str:
        if self.found.version is None:
            return "may not be read"
        if self.found.is_newer:
            return "of a newer delaystore: upgrade this one"
        return "upgrade needed: run `delaystore setup`" if self.found.is_older else "current"


def report_endpoints(store: str | None, schema: str | None, timeout: str, *, all_schemas: bool, as_json: bool) -> None:
    """Print the endpoints of the database that `store` names. ConfigurationError where it is none."""
    from delaystore.cli._endpoint import EndpointOptions
    from delaystore.cli._files import require_file
    from delaystore.stores.sql import SqlDelayedMessageStore

    if all_schemas and schema is not None:
        raise ConfigurationError("--schema and --all-schemas are both given; pass one of them")
    patience, schema = Patience(timeout), schema or None
    with closing(EndpointOptions(store=store).open_store()) as opened:
        require_file(store or "")
        if not isinstance(opened, SqlDelayedMessageStore):
            raise ConfigurationError("only a SQL database can list its endpoints; name one with --endpoint")
        found = list(_found(opened, patience, schema, all_schemas=all_schemas))
    if as_json:
        print_document({"endpoints": [each.document() for each in found]})
    elif found:
        first = 0 if any(each.found.schema for each in found) else 1
        columns = ("schema", "endpoint", "waiting", "dispatchers", "tables")
        rows = [each.row()[first:] for each in found]
        print_table(columns[first:], rows, right=("waiting", "dispatchers"))
    else:
        where = "the database" if schema is None else f"the schema {schema!r}"
        tell(f"{where} has no endpoints")
        if not all_schemas:
            say("--all-schemas looks into every schema; `delaystore setup` makes an endpoint")


def _found(
    opened: "SqlDelayedMessageStore", patience: Patience, schema: str | None, *, all_schemas: bool
) -> Iterator[Endpoint]:
    from delaystore.stores.sql.catalog import endpoint_tables, schema_names

    def tables() -> "Sequence[EndpointTable]":
        schemas = schema_names(opened.engine) if all_schemas else [schema]
        return [each for name in schemas for each in endpoint_tables(opened.engine, name)]

    for each in patience.required("looking for endpoints", tables):
        yield Endpoint(each) if each.version is None else _asked(opened, each, patience)


def _asked(opened: "SqlDelayedMessageStore", found: "EndpointTable", patience: Patience) -> Endpoint:
    from delaystore.settings import TransactionMode
    from delaystore.stores.operable import OperableDelayedMessageStore
    from delaystore.stores.sql import SqlDelayedMessageStore

    store = SqlDelayedMessageStore(opened.engine, schema=found.schema, table=found.table)
    store.initialize(found.endpoint or found.table, TransactionMode.NONE)

    def dispatchers() -> int | None:
        if not isinstance(store, OperableDelayedMessageStore) or not store.is_operable:
            return None
        return len(store.dispatchers())

    try:
        waiting = patience.answer("counting", store.estimate_count)
        return Endpoint(found, waiting, patience.answer("asking for dispatchers", dispatchers))
    except StoreError:  # this user may not, or a later release has changed the tables
        return Endpoint(found)
