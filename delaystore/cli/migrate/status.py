"""`delaystore migrate status`."""

from typing import TYPE_CHECKING, Any

from delaystore.cli.migrate.opening import check_endpoints, chosen_endpoints, opened_source
from delaystore.cli.migrate.options import AllEndpoints, CutoffTime, EndpointName, From, To
from delaystore.cli.options import Json
from delaystore.cli.output import print_document, print_table

if TYPE_CHECKING:
    from delaystore.migrations.abc import MigrationSource, Run, RunCounts

_REJECTIONS = 20


def status(
    source: From = None,
    target: To = None,  # noqa: ARG001 - taken by all these commands, so that a line can be repeated
    endpoint: EndpointName = None,
    all_endpoints: AllEndpoints = False,
    cutoff_time: CutoffTime = None,  # noqa: ARG001 - the same
    as_json: Json = False,
) -> None:
    """Say what the last run did, for each endpoint. Changes nothing."""
    check_endpoints(endpoint, all_endpoints or not endpoint)
    with opened_source(source) as from_source:
        found = {name: _look(from_source, name) for name in chosen_endpoints(from_source, endpoint)}
        if as_json:
            print_document({"endpoints": [_document(from_source, name, *entry) for name, entry in found.items()]})
            return
    print_table(
        ("endpoint", "status", "begun", "ended", "prepared", "moved", "rejected", "returned", "pending", "target"),
        [_row(name, *entry) for name, entry in found.items()],
        right=("prepared", "moved", "rejected", "returned", "pending"),
        unbroken=("status", "begun", "ended"),
    )


def _look(source: "MigrationSource", name: str) -> "tuple[Run | None, RunCounts]":
    from delaystore.migrations.abc import RunCounts

    run = source.run(name)
    return run, RunCounts() if run is None else source.counts(run)


def _row(name: str, run: "Run | None", counts: "RunCounts") -> tuple[str, ...]:
    from delaystore.cli.migrate.tables import time_text

    if run is None:
        return (name, "no run", *[""] * 8)
    numbers = (counts.prepared, counts.moved, counts.rejected, counts.returned, counts.pending)
    times = time_text(run.started), time_text(run.completed)
    return (name, run.status.value, *times, *(f"{number:,}" for number in numbers), run.parameters.target)


def _document(source: "MigrationSource", name: str, run: "Run | None", counts: "RunCounts") -> dict[str, Any]:
    from delaystore.cli.migrate.documents import counts_document, rejection_documents, run_document

    rejections = [] if run is None or not counts.rejected else source.rejections(run, _REJECTIONS)
    return {
        "endpoint": name,
        "run": run_document(run),
        "counts": counts_document(counts),
        "rejections": rejection_documents(rejections),
    }
