"""`delaystore migrate abort`."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.amounts import counted
from delaystore.cli._migrate import options
from delaystore.cli._migrate.reports import (
    REJECTED_REMAIN,
    collected,
    print_counts,
    report_document,
    say_rejections,
    say_set_aside,
)
from delaystore.cli._options import Json
from delaystore.cli._output import say
from delaystore.cli._signals import stop_requests
from delaystore.errors import ConfigurationError

if TYPE_CHECKING:
    from delaystore.migrations.abc import MigrationSource, Report


def abort(
    source: options.From = None,
    target: options.To = None,
    endpoint: options.EndpointName = None,
    all_endpoints: options.AllEndpoints = False,
    cutoff_time: options.CutoffTime = None,  # noqa: ARG001 - the same
    target_lost: Annotated[
        bool, typer.Option("--target-lost", help="Do not ask the target; give back all that was in flight, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give back what the last run has not moved, exactly as it was, with what it and every earlier run rejected.

    What has moved stays at the target; of what was in flight when a run was killed, a delaystore SQL store tells which
    it has received. After a run that is complete, this gives back what was rejected.
    Exit code 3: a rejected message remains, since one with its id waits again.
    """
    from delaystore.cli._progress_bar import ProgressBar
    from delaystore.migrations import runner

    options.check_endpoints(endpoint, all_endpoints)
    remaining = 0
    with stop_requests() as stop, options.opened_source(source) as from_source, collected(as_json) as document:
        for name in options.chosen_endpoints(from_source, endpoint, begun=True):
            if stop.made:
                break
            if not target and not target_lost:
                _check_none_in_flight(from_source, name)
            opened = options.opened_target(target, name) if target and not target_lost else nullcontext()
            with opened as to_target, ProgressBar() as bar:
                report = runner.abort(
                    from_source, name, target=to_target, listener=bar.show, stopping=lambda: stop.made
                )
            remaining += report.set_aside
            document["endpoints"].append(report_document(name, report))
            if not as_json:
                _print(name, report)
    if stop.made:
        say("stopped; abort again for the rest")
        raise typer.Exit(stop.exit_code)
    if remaining:
        raise typer.Exit(REJECTED_REMAIN)


def _check_none_in_flight(source: "MigrationSource", name: str) -> None:
    """ConfigurationError where the target must be asked what it has received."""
    from delaystore.migrations.abc import BatchStatus

    run = source.run(name)
    if run is None or run.parameters.dry_run:
        return
    if count := sum(batch.count for batch in source.batches(run, BatchStatus.STAGED)):
        raise ConfigurationError(
            f"{counted(count, 'message')} of {name!r} were being sent when the run stopped, and may be at the target; "
            "pass --to URL, so that it is asked, or --target-lost to give all of them back"
        )


def _print(name: str, report: "Report") -> None:
    print_counts([(name, report.counts)])
    say(f"{name}: {counted(report.extra['given_back'], 'message')} given back")
    if received := report.extra["received"]:
        say(
            f"{name}: {counted(received, 'message')} that were being sent when the run stopped had arrived; they stay "
            "at the target, and count as moved"
        )
    if in_flight := report.extra["in_flight"]:
        say(
            f"{name}: {counted(in_flight, 'message')} were being sent when the run stopped: given back, they may be at "
            "the target as well, with the same message_id"
        )
    say_rejections(report.rejections, report.counts.rejected)
    say_set_aside(name, report.counts.rejected, report.earlier)
