"""`delaystore status`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from delaystore import documents
from delaystore.cli._arguments import parse_duration
from delaystore.cli._options import Endpoint, Json, Schema, StoreUrl, Table
from delaystore.cli._output import about, print_document, print_table, tell
from delaystore.cli._store_report import MaxOverdue, Patience, StoreReport, Timeout

if TYPE_CHECKING:
    from delaystore.cli._endpoint import OpenedEndpoint
    from delaystore.sql.sizes import TableSize

_SIZES = ("rows", "dead rows", "data", "indexes")


def status(
    max_overdue: MaxOverdue = "5m",
    timeout: Timeout = "5s",
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Say how many messages wait, when the first is due, and how large their tables are.

    Never reads all that waits: more than 100,000 messages are estimated, as are rows of tables; a "?" is what the
    database does not tell. Exit code 1: unhealthy, as for health. Creates no table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    allowed = parse_duration(max_overdue, "--max-overdue")
    patience = Patience(timeout)
    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        report = patience.report(opened)
        sizes = _sizes(patience, opened)
    healthy = report.healthy(allowed)
    if as_json:
        tables = None if sizes is None else [asdict(size) for size in sizes]
        more: dict[str, Any] = {"first_due": documents.instant(report.first_due), "tables": tables}
        problem = {} if report.problem is None else {"store": report.problem}
        print_document(report.document(healthy=healthy) | more | problem)
    else:
        _print(report, healthy, sizes)
    if not healthy:
        raise typer.Exit(1)


def _sizes(patience: Patience, opened: "OpenedEndpoint") -> "Sequence[TableSize] | None":
    """The sizes of the tables; empty: the store has none. None: no answer in time."""
    from delaystore.stores.sql import SqlDelayedMessageStore

    if not isinstance(opened.store, SqlDelayedMessageStore):
        return ()
    return patience.answer("asking for sizes", opened.store.sizes)


def _print(report: StoreReport, healthy: bool, sizes: "Sequence[TableSize] | None") -> None:
    if report.waiting is not None:
        tell(f"waiting    {about(report.waiting, 'delaystore count --exact counts')}")
    if report.first_due is not None:
        tell(f"first due  {documents.instant(report.first_due)}")
    tell(f"store      {'healthy' if healthy else 'unhealthy'}: {report.problem or report.lateness}")
    if sizes is None and report.waiting is not None:
        tell("tables     no answer in time")
    if sizes:
        print_table(("table", *_SIZES), [_row(size) for size in sizes], right=_SIZES, unbroken=_SIZES)


def _row(size: "TableSize") -> tuple[str, ...]:
    numbers = ("?" if number is None else f"{number:,}" for number in (size.rows, size.dead_rows))
    return (size.name, *numbers, _bytes(size.data_bytes), _bytes(size.index_bytes))


def _bytes(number: int | None) -> str:
    if number is None:
        return "?"
    return f"{number / 2**20:,.1f} MiB" if number >= 2**20 else f"{number / 2**10:,.1f} KiB"
