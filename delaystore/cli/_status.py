"""`delaystore status`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delaystore.cli._options import (
    DEFAULT_ERROR_QUEUE,
    Endpoint,
    Json,
    Schema,
    StoreUrl,
    Table,
    TransportUrl,
    environment_option,
)
from delaystore.cli._output import is_terminal, print_document, write
from delaystore.cli._recent import WINDOWS
from delaystore.cli._store_report import (
    MaxOverdue,
    Patience,
    StoreReport,
    Timeout,
    require_dispatcher_option,
    told_error_queue_option,
)
from delaystore.errors import ConfigurationError, StoreError
from delaystore.times import parse_duration

_LEFT_OUT: Final = ("activity", "rate", "lateness")
"""Of an overview: `recent` says more."""

if TYPE_CHECKING:
    from delaystore.cli._endpoint import OpenedEndpoint
    from delaystore.operations.demands import Demands
    from delaystore.sql.sizes import TableSize


def status(
    watch: Annotated[bool, environment_option("--watch", "Show it again and again.", group="status")] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How often, with --watch.")] = "2s",
    max_overdue: MaxOverdue = "5m",
    require_dispatcher: Annotated[bool, require_dispatcher_option("status")] = False,
    timeout: Timeout = "5s",
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    transport: TransportUrl = None,
    error_queue: Annotated[str, told_error_queue_option("status")] = DEFAULT_ERROR_QUEUE,
    as_json: Json = False,
) -> None:
    """Show how an endpoint is doing, on one screen.

    What waits, fails and is paused, dispatchers, rates, lateness, tables. Without --endpoint: the endpoints of the
    database, a line each. Never reads all that waits: more than 100,000 messages are estimated, as are rows of tables;
    failing and parked ones are counted up to 10,000. A "?" is what the database does not tell. --watch redraws it until
    Ctrl-C; with --json it prints a document a line. Exit code 1: unhealthy, as for health. Creates no table and no
    file.
    """
    from delaystore.operations.demands import Demands

    demands = Demands(max_overdue=parse_duration(max_overdue, "--max-overdue"), dispatcher=require_dispatcher)
    seconds = parse_duration(every, "--every").total_seconds()
    if not seconds:
        raise ConfigurationError("--every is 0; write how often, as in 2s")
    Patience(timeout)
    if not endpoint:
        _list_endpoints(store, schema, timeout, watch=watch, as_json=as_json)
        return
    from delaystore.cli._endpoint import EndpointOptions, reading

    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table, transport=transport)
    with options.open(reading(error_queue)) as opened:
        first = _Status.of(opened, timeout, demands)
        if not watch:
            _print(first, as_json=as_json)
            if first.report.faults(demands):
                raise typer.Exit(1)
            return
        _watch(first, opened, timeout, seconds, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Status:
    """How an endpoint is. `sizes`: of its tables; empty: the store has none. None: no answer in time."""

    report: StoreReport
    demands: "Demands"
    sizes: "Sequence[TableSize] | None"

    @classmethod
    def of(cls, opened: "OpenedEndpoint", timeout: str, demands: "Demands") -> "_Status":
        """As it is now; raises StoreError."""
        patience = Patience(timeout)
        report = patience.report(opened)
        return cls(report, demands, _sizes(patience, opened))

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        seen = self.report.overview
        told = {name: value for name, value in seen.as_dict().items() if name not in _LEFT_OUT}
        recent = [found.as_dict() for minutes in WINDOWS if (found := seen.recent(minutes)) is not None]
        faults = self.report.faults(self.demands)
        return {
            "endpoint": seen.endpoint,
            "healthy": not faults,
            "problems": list(faults),
            **told,
            "recent": recent or None,
            "tables": None if self.sizes is None else [asdict(size) for size in self.sizes],
            **({} if self.report.problem is None else {"store": self.report.problem}),
        }

    def lines(self) -> list[str]:
        """The same for people."""
        from delaystore.cli._status_screen import status_lines

        return status_lines(self.report, self.demands, self.sizes)


def _print(found: _Status, *, as_json: bool) -> None:
    if as_json:
        print_document(found.document())
        return
    write("".join(f"{line}\n" for line in found.lines()))


def _watch(first: _Status, opened: "OpenedEndpoint", timeout: str, seconds: float, *, as_json: bool) -> None:
    from delaystore.cli._watch import watch_documents, watch_screen

    if not as_json and not is_terminal():
        raise ConfigurationError("--watch redraws a terminal; for a file or a pipe add --json, which prints lines")
    demands = first.demands
    if as_json:

        def document() -> dict[str, Any]:
            try:
                return _Status.of(opened, timeout, demands).document()
            except StoreError as error:
                return {"endpoint": opened.endpoint, "healthy": False, "problems": [str(error)], "store": str(error)}

        watch_documents(document, seconds)
    else:

        def lines() -> list[str]:
            try:
                return _Status.of(opened, timeout, demands).lines()
            except StoreError as error:
                return [f"{'endpoint':<13}{opened.endpoint}", f"{'health':<13}unhealthy: {error}"]

        watch_screen(lines, seconds)


def _list_endpoints(store: str | None, schema: str | None, timeout: str, *, watch: bool, as_json: bool) -> None:
    from delaystore.cli._endpoints import report_endpoints

    if watch:
        raise ConfigurationError("--watch shows one endpoint; pass --endpoint NAME or set DELAYSTORE_ENDPOINT")
    report_endpoints(store, schema, timeout, all_schemas=False, as_json=as_json)


def _sizes(patience: Patience, opened: "OpenedEndpoint") -> "Sequence[TableSize] | None":
    from delaystore.stores.sql import SqlDelayedMessageStore

    if not isinstance(opened.store, SqlDelayedMessageStore):
        return ()
    return patience.answer("asking for sizes", opened.store.sizes)
