"""`delaystore migrate` run and preview."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.cli._commands import Offered
from delaystore.cli._migrate_reports import (
    REJECTED_REMAIN,
    AllowRejected,
    Asking,
    MigrationOptions,
    check_document,
    collected,
    print_checks,
    print_counts,
    print_problems,
    print_rejected,
    report_document,
    say_left,
    say_rejections,
)
from delaystore.cli._options import JsonOption, MaxRate, TargetTimeoutOption, YesOption
from delaystore.cli._output import print_document, print_line, print_note
from delaystore.cli._signals import stop_requests
from delaystore.errors import ConfigurationError
from delaystore.text import counted, parse_duration, time_text

if TYPE_CHECKING:
    from delaystore.migrations.abc import MigrationSource, Report
    from delaystore.migrations.runner import RunCheck, RunSettings


def run(
    *,
    given: MigrationOptions,
    batch_size: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Number of messages in a batch. Default: 1000, or as in the stopped run."),
    ] = None,
    max_rate: MaxRate = None,
    max_rejected: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Maximum number of rejected messages; one more stops the run. Default: 0."),
    ] = None,
    allow_rejected: AllowRejected = False,
    target_timeout: TargetTimeoutOption = "60s",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move messages, or continue a stopped run.

    The run begins with the checks of preview. It hides messages from the old dispatcher before it sends them. Messages
    leave the source once the target has confirmed them. Ctrl-C stops after the batches in flight; a second Ctrl-C stops
    at once, as a kill does.

    After a stop or a kill, run the command again with the same parameters: no message is lost. After a kill, a
    delaystore SQL store gets only messages that it has not received. A broker gets up to three batches again, and these
    messages may arrive twice, with the same message_id.

    A message that cannot move stops the run, unless you pass --allow-rejected or --max-rejected. With them the message
    is rejected, and hidden from every dispatcher until abort gives it back. In a table of another program it stays in
    place.
    """
    from delaystore.migrations.runner import RunSettings

    given.check_endpoints()
    given.require_target()
    given.check_different()
    settings = RunSettings(
        cutoff=given.cutoff(),
        batch_size=batch_size,
        max_rate=max_rate,
        max_rejects=max_rejected,
        allow_rejects=allow_rejected,
        target_timeout=parse_duration(target_timeout, "--target-timeout"),
    )
    asking = Asking("the move", yes=yes)
    reports: list[Report] = []
    with (
        stop_requests(asking.interrupted) as stop,
        given.open_source() as from_source,
        collected(as_json) as document,
    ):
        names = given.endpoints(from_source)
        if len(names) > 1:
            _check_all(from_source, given, names, settings)
        for name in names:
            if not stop.made:
                report = _run(from_source, given, name, settings, lambda: stop.made, asking)
                reports.append(report)
                document["endpoints"].append(report_document(name, report))
                if not as_json:
                    _print(name, report)
                say_left(name, report.left)
                print_rejected(name, report.counts.rejected, report.earlier)
    if stop.made:
        print_note("stopped; messages in flight are finished; run it again for the remaining messages")
        raise typer.Exit(stop.exit_code)
    if any(report.extra.get("declined") for report in reports):
        raise typer.Exit(1)
    if any(report.rejected_left or report.remaining or report.extra.get("would_be_rejected") for report in reports):
        raise typer.Exit(REJECTED_REMAIN)


def _check_all(
    source: "MigrationSource", given: MigrationOptions, names: Sequence[str], settings: "RunSettings"
) -> None:
    """Raise MigrationError where something blocks one of them, before the first is begun."""
    from delaystore.migrations.runner import check

    for name in names:
        with given.open_target(name) as to_target:
            check(source, to_target, name, settings.cutoff).refuse(allow_rejects=settings.allow_rejects)


def _run(
    source: "MigrationSource",
    given: MigrationOptions,
    name: str,
    settings: "RunSettings",
    stopping: Callable[[], bool],
    asking: Asking,
) -> "Report":
    from delaystore.cli._progress import ProgressBar
    from delaystore.migrations import runner

    with given.open_target(name) as to_target, ProgressBar() as bar:

        def confirm(checked: "RunCheck") -> bool:
            for problem in checked.problems:
                print_note(f"caution: {problem.subject}: {problem.text}")
            return asking.confirm(_question(checked, source.label, to_target.label))

        return runner.run(source, to_target, name, settings, listener=bar.show, stopping=stopping, confirm=confirm)


def _question(checked: "RunCheck", source: str, target: str) -> str:
    assert checked.waiting is not None
    if checked.unfinished is not None:
        return f"Go on with the run of {checked.endpoint} from {source} to {target}?"
    return f"Move {counted(checked.waiting.count, 'message')} of {checked.endpoint} from {source} to {target}?"


def _print(name: str, report: "Report") -> None:
    if report.run is None:
        print_note(f"{name}: nothing was moved" if report.extra.get("declined") else f"{name}: nothing to move")
        return
    print_counts([(name, report.counts)])
    if "would_move" in report.extra:
        print_note(f"{name}: {_dry_run(report)}")
    elif report.sent:
        rate = report.sent / report.seconds if report.seconds else 0.0
        print_note(f"{name}: {counted(report.sent, 'message')} sent in {report.seconds:.1f} s, {rate:,.0f}/s")
        if again := report.extra["sent_again"]:
            print_note(
                f"{name}: {counted(again, 'message')} sent again after a stop or an outage; a delaystore SQL store "
                "keeps each once, a broker may deliver these twice, with the same message_id"
            )
    say_rejections(report.rejections, report.extra.get("would_be_rejected", report.counts.rejected))


def _dry_run(report: "Report") -> str:
    extra = report.extra
    return (
        f"a dry run: {counted(extra['would_move'], 'message')} would move, {extra['would_be_rejected']:,} would be "
        f"rejected; hiding and reading them took {extra['seconds_to_hide_and_read']:.1f} s, sending not "
        "included; everything is back where it was"
    )


def preview(
    *,
    given: MigrationOptions,
    allow_rejected: AllowRejected = False,
    as_json: JsonOption = False,
) -> None:
    """Count messages to move and check for obstacles.

    The command reads every message, and asks the target whether it would accept it. It changes nothing.
    """
    from delaystore.cli._progress import ProgressBar
    from delaystore.migrations.runner import check

    given.check_endpoints()
    given.require_target()
    given.check_different()
    cutoff = given.cutoff()
    found = []
    with given.open_source() as from_source:
        for name in given.endpoints(from_source):
            with given.open_target(name) as to_target:
                with ProgressBar(transient=True) as bar:
                    found.append(check(from_source, to_target, name, cutoff, every_message=True, listener=bar.show))
                label = to_target.label
    blocked = any(not (allow_rejected and problem.messages) for one in found for problem in one.blocking)
    if as_json:
        endpoints = [check_document(one) for one in found]
        print_document({"good": not blocked, "source": from_source.label, "target": label, "endpoints": endpoints})
    else:
        print_checks(found)
        print_problems(list(dict.fromkeys(problem for one in found for problem in one.problems)))
        for one in found:
            if one.unfinished is not None:
                begun = time_text(one.unfinished.started)
                print_note(f"unfinished: a run of {one.endpoint} to {one.unfinished.parameters.target}, begun {begun}")
        if blocked:
            print_note(
                "a run would be refused" + ("" if allow_rejected else "; --allow-rejected overlooks single messages")
            )
    if blocked:
        raise typer.Exit(1)


def schedules(
    *,
    given: Annotated[MigrationOptions, Offered("source", "target", "endpoint")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which jobs would move.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move recurring jobs of APScheduler to schedules.

    Stop the scheduler first. A job with a cron or interval trigger becomes the schedule apscheduler/JOB_ID of the
    endpoint, and leaves APScheduler's table. Rejected jobs stay there. After a stop or a kill, run the command again:
    no job is lost, and none is in both places.
    """
    from delaystore.delivery import DelayedDelivery
    from delaystore.migrations.sources.legacy import ApschedulerSource
    from delaystore.stores import open_store
    from delaystore.stores.records import Way

    given.check_endpoints()
    target, name, asking = given.require_target(), given.endpoint or "", Asking("the move", yes=yes or dry_run)
    with given.open_source() as source:
        if not isinstance(source, ApschedulerSource):
            raise ConfigurationError("schedules are moved from APScheduler alone; pass --from apscheduler+URL")
        if not asking.confirm(f"Move the recurring jobs in {source.label} to schedules of {name}?"):
            print_note("nothing was moved")
            raise typer.Exit(1)
        with DelayedDelivery(name, open_store(target)) as delivery:
            if not dry_run:
                delivery.setup_infrastructure()
            found = source.move_schedules(name, delivery.schedules_as(Way.CLI), dry_run=dry_run)
    if as_json:
        rejected = [{"job": one.row_id, "reason": one.reason} for one in found.rejected]
        print_document({"moved": list(found.moved), "rejected": rejected, "dry_run": dry_run})
    else:
        for moved in found.moved:
            print_line(f"{'would move' if dry_run else 'moved'}: {moved}")
        say_rejections(found.rejected, len(found.rejected))
    if found.rejected:
        raise typer.Exit(REJECTED_REMAIN)
