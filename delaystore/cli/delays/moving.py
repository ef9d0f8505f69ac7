"""What `migrate` and `transfer` have in common, once both places are open."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from delaystore.cli.output import counted, print_document, print_table, say
from delaystore.cli.signals import stop_requests

if TYPE_CHECKING:
    from delaystore.transports.rabbitmq.moving.mover import MoveSettings
    from delaystore.transports.rabbitmq.moving.places import Place
    from delaystore.transports.rabbitmq.moving.report import MoveReport


def run(source: "Place", target: "Place", settings: "MoveSettings", *, dry_run: bool, as_json: bool) -> None:
    """Move, or look, and report. Exits with 1 if it does not add up, with 128 and the signal's number if stopped."""
    from delaystore.cli.delays.moving_bar import MovingBar
    from delaystore.transports.rabbitmq.moving.mover import look, move

    with stop_requests() as stop:
        with MovingBar() as bar:
            report = (look if dry_run else move)(source, target, settings, bar, lambda: stop.made)
        findings = report.findings(datetime.now(UTC))
        if as_json:
            print_document(report.as_dict())
        else:
            print_table(("messages", "count"), _rows(report), right=("count",))
        for remark in _remarks(report, settings.poison_queue):
            say(remark)
    for finding in findings:
        say(f"does not add up: {finding}")
    if report.interrupted:
        say("stopped; what was in flight is finished, run it again for the rest")
        raise typer.Exit(stop.exit_code)
    if findings:
        raise typer.Exit(1)


def _rows(report: "MoveReport") -> list[tuple[str, str]]:
    counts = {
        "waited in the source": report.source_before,
        "looked at" if report.dry_run else "read": report.read,
        "would be moved" if report.dry_run else "moved": report.moved,
        "would go to the poison queue" if report.dry_run else "to the poison queue": report.poisoned.total(),
    }
    optional = {
        "left in the source": report.left.total(),
        "given back": report.returned,
        "delivered by the source meanwhile": 0 if report.dry_run or report.interrupted else report.delivered_meanwhile,
        "read once before, perhaps copied twice": 0 if report.dry_run else report.redelivered + report.repeated,
    }
    shown = counts | {name: count for name, count in optional.items() if count}
    rows = [(name, f"{count:,}") for name, count in shown.items()]
    rows += [(f"  for {destination}", f"{count:,}") for destination, count in report.destinations.most_common(20)]
    more = len(report.destinations) - 20
    return [*rows, (f"  and for {counted(more, 'more destination')}", "")] if more > 0 else rows


def _remarks(report: "MoveReport", poison_queue: str) -> list[str]:
    remarks = [f"poison: {counted(count, 'message')}: {reason}" for reason, count in report.poisoned.most_common(20)]
    if report.poisoned and not report.dry_run:
        remarks.append(f"the poison queue is {poison_queue!r}; each message's header delaystore.poison-reason says why")
    if report.disagreeing:
        remarks.append(
            f"{counted(report.disagreeing, 'message')} are due earlier by their headers than by their routing key, by "
            "more than a minute; --due-by key goes by the key"
        )
    if report.dry_run and report.read < report.source_before:
        remarks.append(f"looked at the first messages of each level only: {report.read:,} of {report.source_before:,}")
    remarks += [f"left: {counted(count, 'message')}: {reason}" for reason, count in report.left.most_common(20)]
    return remarks
