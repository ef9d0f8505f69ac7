"""`delaystore migrate status`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import typer

from delaystore.cli._migrate import options
from delaystore.cli._migrate.reports import COUNTS, count_cells, run_document
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, print_table, tell
from delaystore.times import time_text

if TYPE_CHECKING:
    from delaystore.migrations.abc import MigrationSource, Rejected, Run, RunCounts

_REJECTIONS_SHOWN: Final = 20
_NO_RUN: Final[dict[str, Any]] = {"run": None, "counts": dict.fromkeys(COUNTS, 0), "rejections": []}


def status(
    source: options.From = None,
    target: options.To = None,  # noqa: ARG001 - taken by all these commands, so that a line can be repeated
    endpoint: options.EndpointName = None,
    all_endpoints: options.AllEndpoints = False,
    cutoff_time: options.CutoffTime = None,  # noqa: ARG001 - the same
    rejections: Annotated[
        bool, typer.Option("--rejections", help="List every rejected message that remains, and why.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what the runs did that were not cleaned up, for each endpoint, the last one last. Changes nothing."""
    options.check_endpoints(endpoint, all_endpoints or not endpoint)
    with options.opened_source(source) as from_source:
        shown = None if rejections else _REJECTIONS_SHOWN if as_json else 0
        found = {
            name: [_Entry.of(from_source, run, shown) for run in from_source.runs(name)]
            for name in options.chosen_endpoints(from_source, endpoint)
        }
    if as_json:
        print_document({"endpoints": [_document(name, entries) for name, entries in found.items()]})
        return
    print_table(
        ("endpoint", "status", "begun", "ended", *COUNTS, "target"),
        [row for name, entries in found.items() for row in _rows(name, entries)],
        right=COUNTS,
        unbroken=("status", "begun", "ended"),
    )
    for name, entries in found.items():
        for entry in entries:
            for one in entry.rejections:
                tell(f"rejected: {name}, run of {time_text(entry.run.started)}: {one.row_id}: {one.reason}")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A run, what became of its rows, and rejected ones among them."""

    run: "Run"
    counts: "RunCounts"
    rejections: "Sequence[Rejected]"

    @classmethod
    def of(cls, source: "MigrationSource", run: "Run", shown: int | None) -> Self:
        """`shown`: how many rejected rows; None: all."""
        counts = source.counts(run)
        return cls(run, counts, source.rejections(run, shown) if counts.rejected and shown != 0 else ())


def _rows(name: str, entries: "Sequence[_Entry]") -> list[tuple[str, ...]]:
    if not entries:
        return [(name, "no run", *[""] * 8)]
    return [
        (
            name,
            run.status.value,
            time_text(run.started),
            time_text(run.completed),
            *count_cells(entry.counts),
            run.parameters.target,
        )
        for entry in entries
        for run in [entry.run]
    ]


def _document(name: str, entries: "Sequence[_Entry]") -> dict[str, Any]:
    """The last run; `earlier_runs`: those before it, in their order."""
    *earlier, last = map(_run_document, entries) if entries else [_NO_RUN]
    return {"endpoint": name, **last, "earlier_runs": earlier}


def _run_document(entry: "_Entry") -> dict[str, Any]:
    return {
        "run": run_document(entry.run),
        "counts": asdict(entry.counts),
        "rejections": [asdict(one) for one in entry.rejections],
    }
