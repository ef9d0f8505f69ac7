"""`delaystore migrate status`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from delaystore.cli._migrate import options
from delaystore.cli._migrate.reports import COUNTS, count_cells, run_document, time_text
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, print_table

if TYPE_CHECKING:
    from delaystore.migrations.abc import MigrationSource, Run, RunCounts

_REJECTIONS_SHOWN = 20


def status(
    source: options.From = None,
    target: options.To = None,  # noqa: ARG001 - taken by all these commands, so that a line can be repeated
    endpoint: options.EndpointName = None,
    all_endpoints: options.AllEndpoints = False,
    cutoff_time: options.CutoffTime = None,  # noqa: ARG001 - the same
    as_json: Json = False,
) -> None:
    """Say what the last run did, for each endpoint. Changes nothing."""
    options.check_endpoints(endpoint, all_endpoints or not endpoint)
    with options.opened_source(source) as from_source:
        found = {name: _run_of(from_source, name) for name in options.chosen_endpoints(from_source, endpoint)}
        if as_json:
            print_document({"endpoints": [_document(from_source, name, *entry) for name, entry in found.items()]})
            return
    print_table(
        ("endpoint", "status", "begun", "ended", *COUNTS, "target"),
        [_row(name, *entry) for name, entry in found.items()],
        right=COUNTS,
        unbroken=("status", "begun", "ended"),
    )


def _run_of(source: "MigrationSource", name: str) -> "tuple[Run | None, RunCounts]":
    from delaystore.migrations.abc import RunCounts

    run = source.run(name)
    return run, RunCounts() if run is None else source.counts(run)


def _row(name: str, run: "Run | None", counts: "RunCounts") -> tuple[str, ...]:
    if run is None:
        return (name, "no run", *[""] * 8)
    times = time_text(run.started), time_text(run.completed)
    return (name, run.status.value, *times, *count_cells(counts), run.parameters.target)


def _document(source: "MigrationSource", name: str, run: "Run | None", counts: "RunCounts") -> dict[str, Any]:
    rejections = [] if run is None or not counts.rejected else source.rejections(run, _REJECTIONS_SHOWN)
    return {
        "endpoint": name,
        "run": run_document(run),
        "counts": asdict(counts),
        "rejections": [asdict(one) for one in rejections],
    }
