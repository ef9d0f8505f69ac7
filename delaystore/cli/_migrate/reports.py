"""What the commands of `delaystore migrate` say: tables for people, documents in JSON, whose keys are stable."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from delaystore.amounts import counted
from delaystore.cli._output import print_document, print_table, say
from delaystore.documents import instant
from delaystore.errors import DelaystoreError
from delaystore.times import time_text

if TYPE_CHECKING:
    from delaystore.migrations.abc import Problem, Rejected, Report, Run, RunCounts, SetAside
    from delaystore.migrations.runner import RunCheck, Verification

REJECTED_REMAIN: Final = 3
"""The exit code of a command that has done all it could, where rejected rows remain."""
COUNTS: Final = ("prepared", "moved", "rejected", "returned", "pending")
_DESTINATIONS_SHOWN: Final = 20
_LEFT_SHOWN: Final = 20


def print_checks(found: "Sequence[RunCheck]") -> None:
    """A table of the endpoints, and one of their destinations."""
    rows = [
        (
            one.endpoint,
            "?" if one.waiting is None else f"{one.waiting.count:,}",
            "?" if one.waiting is None else f"{one.waiting.staying:,}",
            f"{one.immovable:,}",
            "" if one.waiting is None else time_text(one.waiting.earliest),
            "" if one.waiting is None else time_text(one.waiting.latest),
        )
        for one in found
    ]
    columns = ("endpoint", "to move", "staying", "cannot move", "earliest", "latest")
    print_table(columns, rows, right=columns[1:4], unbroken=columns[4:])
    destinations = [
        (one.endpoint, destination, f"{count:,}")
        for one in found
        if one.waiting is not None
        for destination, count in _most(one.waiting.destinations)
    ]
    if destinations:
        print_table(("endpoint", "destination", "messages"), destinations, right=("messages",))


def print_problems(problems: "Sequence[Problem]") -> None:
    """A table of the problems, where there are any."""
    rows = [
        (
            "hinders" if one.fatal else "warning",
            one.subject,
            one.text + (f" ({counted(one.messages, 'message')})" if one.messages else ""),
        )
        for one in problems
    ]
    if rows:
        print_table(("problem", "of", "what"), rows, unbroken=("problem",))


def print_counts(rows: "Sequence[tuple[str, RunCounts]]") -> None:
    """A table of what became of the rows of each endpoint."""
    cells = [(endpoint, *count_cells(counts)) for endpoint, counts in rows]
    print_table(("endpoint", *COUNTS), cells, right=COUNTS)


def count_cells(counts: "RunCounts") -> list[str]:
    """The cells of the columns `COUNTS`."""
    return [f"{getattr(counts, name):,}" for name in COUNTS]


def say_rejections(rejections: "Sequence[Rejected]", count: int) -> None:
    """A line for each, and one for how many more of `count` there are."""
    for one in rejections:
        say(f"rejected: {one.row_id}: {one.reason}")
    if count > len(rejections):
        say(f"rejected: and {count - len(rejections):,} more")


def say_left(name: str, left: "Sequence[Rejected]") -> None:
    """A line for each of the first rows that stay in their table, and one for how many there are."""
    for one in left[:_LEFT_SHOWN]:
        say(f"left: {one.row_id}: {one.reason}")
    if left:
        say(f"{name}: {counted(len(left), 'row')} left in the table: the program that keeps it still finds them")


def say_set_aside(name: str, count: int, earlier: "Sequence[SetAside]") -> None:
    """What rejected rows remain, if any: `count` of the last run, the others of `earlier` ones."""
    parts = [f"{count:,} of the last run"] if count else []
    parts += [f"{one.count:,} of the run begun {time_text(one.run.started)}" for one in earlier]
    if parts:
        say(
            f"{name}: rejected, and hidden from every dispatcher: {', '.join(parts)}; status --rejections says why, "
            "abort gives them back"
        )


@contextmanager
def collected(as_json: bool) -> Iterator[dict[str, Any]]:
    """A document to fill, printed at the block's end; and where the block fails after an endpoint, with the error."""
    document: dict[str, Any] = {"endpoints": []}
    try:
        yield document
    except DelaystoreError as error:
        if as_json and document["endpoints"]:
            print_document({**document, "error": " ".join(str(error).split())})
        raise
    if as_json:
        print_document(document)


def check_document(checked: "RunCheck") -> dict[str, Any]:
    """What is known of an endpoint before a run."""
    waiting = checked.waiting
    return {
        "endpoint": checked.endpoint,
        "count": None if waiting is None else waiting.count,
        "staying": None if waiting is None else waiting.staying,
        "earliest": None if waiting is None else instant(waiting.earliest),
        "latest": None if waiting is None else instant(waiting.latest),
        "destinations": {} if waiting is None else dict(waiting.destinations),
        "immovable": checked.immovable,
        "problems": [
            {"subject": one.subject, "text": one.text, "hinders": one.fatal, "messages": one.messages}
            for one in checked.problems
        ],
        "unfinished_run": run_document(checked.unfinished),
        "earlier_rejected": set_aside_documents(checked.set_aside),
    }


def run_document(run: "Run | None") -> dict[str, Any] | None:
    """A run as its source remembers it."""
    if run is None:
        return None
    return {
        "run_id": run.run_id,
        "status": run.status.value,
        "target": run.parameters.target,
        "cutoff": instant(run.parameters.cutoff),
        "batch_size": run.parameters.batch_size,
        "started": instant(run.started),
        "completed": instant(run.completed),
    }


def set_aside_documents(earlier: "Sequence[SetAside]") -> list[dict[str, Any]]:
    """What earlier runs have rejected and still keep."""
    return [{"run": run_document(one.run), "rejected": one.count} for one in earlier]


def report_document(endpoint: str, report: "Report") -> dict[str, Any]:
    """What a run or an abort did."""
    return {
        "endpoint": endpoint,
        "run": run_document(report.run),
        "counts": asdict(report.counts),
        "seconds": round(report.seconds, 3),
        "sent": report.sent,
        "rate": None if not report.seconds else round(report.sent / report.seconds, 1),
        "resumed": report.resumed,
        "rejections": [asdict(one) for one in report.rejections],
        "left": len(report.left),
        "left_rows": [{"row_id": one.row_id, "reason": one.reason} for one in report.left[:_LEFT_SHOWN]],
        "earlier_rejected": set_aside_documents(report.earlier),
        **report.extra,
    }


def verification_document(endpoint: str, verified: "Verification") -> dict[str, Any]:
    """What `verify` found."""
    return {
        "endpoint": endpoint,
        "good": verified.good,
        "run": run_document(verified.run),
        "counts": asdict(verified.counts),
        "source_checksum": str(verified.moved),
        "target_checksum": None if verified.waiting is None else str(verified.waiting),
        "no_longer_there": verified.gone,
        "findings": list(verified.findings),
        "earlier_rejected": set_aside_documents(verified.earlier),
        "remarks": list(verified.remarks),
    }


def _most(destinations: Mapping[str, int]) -> list[tuple[str, int]]:
    ordered = sorted(destinations.items(), key=lambda item: (-item[1], item[0]))
    shown, more = ordered[:_DESTINATIONS_SHOWN], ordered[_DESTINATIONS_SHOWN:]
    return shown + ([(f"and {counted(len(more), 'more')}", sum(count for _, count in more))] if more else [])
