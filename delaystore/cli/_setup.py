"""`delaystore setup` and `endpoints`."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.cli._commands import Offered
from delaystore.cli._health import Deadline
from delaystore.cli._options import (
    DEFAULT_ERROR_QUEUE,
    DispatchedEndpoint,
    EndpointOptions,
    JsonOption,
    environment_option,
    error_queue_option,
)
from delaystore.cli._output import about, print_document, print_line, print_note, print_table
from delaystore.errors import ConfigurationError, StoreError
from delaystore.settings import DelayedDeliverySettings
from delaystore.transports import Transport

if TYPE_CHECKING:
    from delaystore.stores.abc import Count
    from delaystore.stores.sql import SqlDelayedMessageStore
    from delaystore.stores.sql.schema import EndpointTable


class QueueType(StrEnum):
    """What RabbitMQ's queues can be."""

    QUORUM = "quorum"
    CLASSIC = "classic"


def setup(
    queue: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Also create this queue; repeatable.")] = None,
    error_queue: Annotated[str, error_queue_option("Queue for undeliverable messages.", "setup")] = DEFAULT_ERROR_QUEUE,
    queue_type: Annotated[
        QueueType | None,
        typer.Option(help="Type of --queue in RabbitMQ; a Celery worker declares classic queues. Default: quorum."),
    ] = None,
    *,
    where: DispatchedEndpoint,
    check: Annotated[bool, typer.Option("--check", help="Only report missing or wrong parts; change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create or upgrade tables and queues.

    Setup creates the store's tables, and a SQLite file if it does not exist. With --transport it also creates the error
    queue and each --queue. It creates missing tables and indexes, and recreates invalid indexes. For each remaining
    defect it prints a line with the remedy. You can run it again at any time, also in several processes at once.
    """
    from delaystore.cli._options import reading

    if queue and where.transport is None:
        raise ConfigurationError("--queue needs a transport; pass --transport URL or set DELAYSTORE_TRANSPORT")
    if queue_type and not queue:
        raise ConfigurationError("--queue-type needs --queue; pass --queue NAME too")
    if queue_type and (where.transport or "").partition(":")[0].lower() not in ("amqp", "amqps"):
        raise ConfigurationError("--queue-type applies to RabbitMQ only; leave it out")
    settings = reading(error_queue) if check else DelayedDeliverySettings(error_queue=error_queue)
    with where.open(settings) as opened:
        queues = [] if opened.transport is None else [error_queue, *(queue or ())]
        if check:
            defects = [*opened.store.defects(), *_missing(opened.transport, queues)]
        else:
            opened.store.setup_infrastructure()
            defects = [*opened.store.repair(print_note)]
            opened.delivery.setup_infrastructure()
            opened.store.clean_up()
            for name in queue or ():
                assert opened.transport is not None
                _declare(opened.transport, name, queue_type)
    if as_json:
        print_document({"endpoint": where.endpoint, "queues": queues, "ready": not defects, "defects": defects})
    elif defects:
        for each in defects:
            print_line(f"not ready: {each}")
    else:
        print_line(f"ready: the store of endpoint {where.endpoint!r}")
        for name in queues:
            print_line(f"ready: the queue {name!r}")
    if defects:
        raise typer.Exit(1)


def _missing(transport: Transport | None, queues: Sequence[str]) -> Iterator[str]:
    for name in queues:
        if transport is not None and transport.reaches(name) is False:
            yield f"the queue {name!r} is missing; run `delaystore setup`"


def _declare(transport: Transport, name: str, queue_type: QueueType | None) -> None:
    if queue_type is None:
        transport.declare(name)
        return
    from delaystore.transports import RabbitMQTransport

    assert isinstance(transport, RabbitMQTransport)
    transport.declare(name, queue_type=queue_type.value)


def endpoints(
    all_schemas: Annotated[
        bool,
        environment_option("--all-schemas", "Search every schema (MariaDB, MySQL: database).", group="endpoints"),
    ] = False,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="Maximum time for each answer of the database.")
    ] = "5s",
    *,
    where: Annotated[EndpointOptions, Offered("store", "schema")],
    as_json: JsonOption = False,
) -> None:
    """List the endpoints of a database.

    Each line shows the waiting messages, the running dispatchers, and whether the tables need an upgrade. A "?" means
    that the database does not report the value in time, or not to this user.
    """
    from delaystore.cli._options import require_file
    from delaystore.stores.sql import SqlDelayedMessageStore

    if all_schemas and where.schema is not None:
        raise ConfigurationError("--schema and --all-schemas are both given; pass one of them")
    deadline, schema = Deadline(timeout), where.schema or None
    with closing(EndpointOptions(store=where.store).open_store()) as opened:
        require_file(where.store or "")
        if not isinstance(opened, SqlDelayedMessageStore):
            raise ConfigurationError("only a SQL database can list its endpoints; name one with --endpoint")
        found = list(_found(opened, deadline, schema, all_schemas=all_schemas))
    if as_json:
        print_document({"endpoints": [each.document() for each in found]})
    elif found:
        first = 0 if any(each.found.schema for each in found) else 1
        columns = ("schema", "endpoint", "waiting", "dispatchers", "tables")
        rows = [each.row()[first:] for each in found]
        print_table(columns[first:], rows, right=("waiting", "dispatchers"))
    else:
        place = "the database" if schema is None else f"the schema {schema!r}"
        print_line(f"{place} has no endpoints")
        if not all_schemas:
            print_note("--all-schemas looks into every schema; `delaystore setup` makes an endpoint")


@dataclass(frozen=True, slots=True)
class FoundEndpoint:
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


def _found(
    opened: "SqlDelayedMessageStore", deadline: Deadline, schema: str | None, *, all_schemas: bool
) -> Iterator[FoundEndpoint]:
    from delaystore.stores.sql.schema import endpoint_tables, schema_names

    def tables() -> "Sequence[EndpointTable]":
        schemas = schema_names(opened.engine) if all_schemas else [schema]
        return [each for name in schemas for each in endpoint_tables(opened.engine, name)]

    for each in deadline.required("looking for endpoints", tables):
        yield FoundEndpoint(each) if each.version is None else _asked(opened, each, deadline)


def _asked(opened: "SqlDelayedMessageStore", found: "EndpointTable", deadline: Deadline) -> FoundEndpoint:
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
        waiting = deadline.answer("counting", store.estimate_count)
        return FoundEndpoint(found, waiting, deadline.answer("asking for dispatchers", dispatchers))
    except StoreError:  # this user may not, or a later release has changed the tables
        return FoundEndpoint(found)
