"""`delaystore migrate`: abort, clean up, verify and show migrations."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import typer

from delaystore.cli._commands import add_commands, plain_group
from delaystore.cli._migrate_reports import (
    COUNTS,
    REJECTED_REMAIN,
    Asking,
    MigrationOptions,
    collected,
    count_cells,
    print_counts,
    print_rejected,
    report_document,
    run_document,
    say_rejections,
    verification_document,
)
from delaystore.cli._migrate_run import preview, run, schedules
from delaystore.cli._options import JsonOption, YesOption
from delaystore.cli._output import print_document, print_line, print_note, print_table
from delaystore.cli._signals import stop_requests
from delaystore.errors import ConfigurationError
from delaystore.text import counted, time_text

if TYPE_CHECKING:
    from delaystore.migrations.abc import MigrationRun, MigrationSource, Rejected, Report, RunCounts
    from delaystore.migrations.runner import RunVerification


def abort(
    *,
    given: MigrationOptions,
    target_lost: Annotated[
        bool,
        typer.Option("--target-lost", help="Do not ask the target; also give back all messages that were in flight."),
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Return the messages that have not moved.

    The source gets these messages back exactly as they were, with all rejected messages of the last run and of earlier
    ones. Moved messages stay at the target. If a run was killed, a delaystore SQL store knows which messages in flight
    it has received. After a complete run, abort gives back the rejected messages.
    """
    from delaystore.cli._progress import ProgressBar
    from delaystore.migrations import runner

    given.check_endpoints()
    asking, remaining = Asking("the abort", yes=yes), 0
    with (
        stop_requests(asking.interrupted) as stop,
        given.open_source() as from_source,
        collected(as_json) as document,
    ):
        names = given.endpoints(from_source, begun=True)
        if not given.target and not target_lost:
            for name in names:
                _check_none_in_flight(from_source, name)
        if not asking.confirm(_abort_question(from_source, names)):
            print_note("nothing was given back")
            raise typer.Exit(1)
        for name in names:
            if stop.made:
                break
            opened = given.open_target(name) if given.target and not target_lost else nullcontext()
            with opened as to_target, ProgressBar() as bar:
                report = runner.abort(
                    from_source, name, target=to_target, listener=bar.show, stopping=lambda: stop.made
                )
            remaining += report.rejected_left
            document["endpoints"].append(report_document(name, report))
            if not as_json:
                _print_abort(name, report)
    if stop.made:
        print_note("stopped; abort again for the rest")
        raise typer.Exit(stop.exit_code)
    if remaining:
        raise typer.Exit(REJECTED_REMAIN)


def _abort_question(source: "MigrationSource", names: Sequence[str]) -> str:
    counts = [source.counts(run) for run in map(source.run, names) if run is not None]
    left = counted(sum(each.pending + each.rejected for each in counts), "message")
    return f"Abort the last run of {', '.join(names)}, and give {left} back to {source.label}?"


def _check_none_in_flight(source: "MigrationSource", name: str) -> None:
    """ConfigurationError where the target must be asked for its received messages."""
    from delaystore.migrations.abc import BatchStatus

    run = source.run(name)
    if run is None or run.parameters.dry_run:
        return
    if count := sum(batch.count for batch in source.batches(run, BatchStatus.STAGED)):
        raise ConfigurationError(
            f"{counted(count, 'message')} of {name!r} were being sent when the run stopped, and may be at the target; "
            "pass --to URL, so that the target is checked, or --target-lost to return all of them to the source"
        )


def _print_abort(name: str, report: "Report") -> None:
    print_counts([(name, report.counts)])
    print_note(f"{name}: {counted(report.extra['given_back'], 'message')} given back")
    if received := report.extra["received"]:
        print_note(
            f"{name}: {counted(received, 'message')} that were being sent when the run stopped had arrived; they stay "
            "at the target, and count as moved"
        )
    if in_flight := report.extra["in_flight"]:
        print_note(
            f"{name}: {counted(in_flight, 'message')} were being sent when the run stopped: given back, they may be at "
            "the target as well, with the same message_id"
        )
    say_rejections(report.rejections, report.counts.rejected)
    print_rejected(name, report.counts.rejected, report.earlier)


def cleanup(
    *,
    given: MigrationOptions,
    force: Annotated[
        bool,
        typer.Option("--force", help="Delete even if verify does not pass, or rejected messages would be deleted."),
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the records of the last run.

    The records are the tables that show which messages were moved, and that hold rejected messages. Without --force,
    cleanup refuses if verify does not pass, or if rejected messages were not given back. It always refuses while
    messages are pending.
    """
    from delaystore.migrations import runner

    given.check_endpoints()
    given.require_target()
    asking = Asking("the deletion", yes=yes)
    with given.open_source() as from_source, collected(as_json) as document:
        names = given.endpoints(from_source, begun=True)
        question = f"Delete the tables of the last run of {', '.join(names)} in {from_source.label}?"
        if not asking.confirm(question):
            print_note("nothing was deleted")
            raise typer.Exit(1)
        for name in names:
            with given.open_target(name) as to_target:
                verified = runner.clean_up(from_source, to_target, name, force=force)
            document["endpoints"].append(verification_document(name, verified))
            if not as_json:
                print_line(f"cleaned up: {name}, run of {time_text(verified.run.started)}")


_REJECTIONS_SHOWN: Final = 20
_NO_RUN: Final[dict[str, Any]] = {"run": None, "counts": dict.fromkeys(COUNTS, 0), "rejections": []}


def status(
    *,
    given: MigrationOptions,
    list_rejected: Annotated[
        bool, typer.Option("--list-rejected", help="List all remaining rejected messages, with the reasons.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show past runs and rejected messages.

    For each endpoint the table shows the runs that were not cleaned up, the last one last. The command changes nothing.
    """
    if given.endpoint:
        given.check_endpoints()
    with given.open_source() as from_source:
        shown = None if list_rejected else _REJECTIONS_SHOWN if as_json else 0
        found = {
            name: [_RunEntry.of(from_source, run, shown) for run in from_source.runs(name)]
            for name in given.endpoints(from_source)
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
                print_line(f"rejected: {name}, run of {time_text(entry.run.started)}: {one.row_id}: {one.reason}")


@dataclass(frozen=True, slots=True)
class _RunEntry:
    """A run, the results of its rows, and rejected ones among them."""

    run: "MigrationRun"
    counts: "RunCounts"
    rejections: "Sequence[Rejected]"

    @classmethod
    def of(cls, source: "MigrationSource", run: "MigrationRun", shown: int | None) -> Self:
        """`shown`: how many rejected rows; None: all."""
        counts = source.counts(run)
        return cls(run, counts, source.rejections(run, shown) if counts.rejected and shown != 0 else ())


def _rows(name: str, entries: "Sequence[_RunEntry]") -> list[tuple[str, ...]]:
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


def _document(name: str, entries: "Sequence[_RunEntry]") -> dict[str, Any]:
    """The last run; `earlier_runs`: those before it, in their order."""
    *earlier, last = map(_run_document, entries) if entries else [_NO_RUN]
    return {"endpoint": name, **last, "earlier_runs": earlier}


def _run_document(entry: "_RunEntry") -> dict[str, Any]:
    return {
        "run": run_document(entry.run),
        "counts": asdict(entry.counts),
        "rejections": [asdict(one) for one in entry.rejections],
    }


def verify(
    *,
    given: MigrationOptions,
    as_json: JsonOption = False,
) -> None:
    """Check counts and checksums of the last run.

    The command counts the results of all messages that the run took. It compares checksums if the target can be read.
    It changes nothing.
    """
    from delaystore.migrations import runner

    given.check_endpoints()
    given.require_target()
    found: list[RunVerification] = []
    with given.open_source() as from_source, collected(as_json) as document:
        document["good"] = False
        for name in given.endpoints(from_source, begun=True):
            with given.open_target(name) as to_target:
                verified = runner.verify(from_source, to_target, name)
            found.append(verified)
            document["endpoints"].append(verification_document(name, verified))
            if not as_json:
                _print_verification(name, verified)
        document["good"] = all(verified.good for verified in found)
    if any(verified.findings for verified in found):
        raise typer.Exit(1)
    if not document["good"]:
        raise typer.Exit(REJECTED_REMAIN)


def _print_verification(name: str, verified: "RunVerification") -> None:
    """The counts, numbers that do not match, and useful remarks."""
    print_counts([(name, verified.counts)])
    if verified.good:
        equal = ", and the checksums are equal" if verified.waiting == verified.moved else ""
        print_line(f"good: {name}: everything is accounted for{equal}")
    for finding in verified.findings:
        print_line(f"not verified: {name}: {finding}")
    if verified.rejected_left:
        left = counted(verified.rejected_left, "rejected message")
        print_line(f"not verified: {name}: {left} left, which no dispatcher sends")
        print_rejected(name, verified.counts.rejected, verified.earlier)
    for remark in verified.remarks:
        print_note(f"{name}: {remark}")


migrate_app = plain_group(
    """Move waiting messages to another store or RabbitMQ.

    Use the commands in this order: preview, run, verify, cleanup. If a run stops, run it again. abort gives back the
    messages that have not moved.
    """
)
add_commands(
    migrate_app,
    {
        "preview": preview,
        "run": run,
        "status": status,
        "abort": abort,
        "verify": verify,
        "cleanup": cleanup,
        "schedules": schedules,
    },
)


__all__: list[str] = []
