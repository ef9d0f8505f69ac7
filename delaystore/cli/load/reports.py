"""What `delaystore load` says of a load."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from delaystore.cli.documents import instant
from delaystore.cli.output import counted, print_table, say, tell

if TYPE_CHECKING:
    from delaystore.spark.loading.due import Bar
    from delaystore.spark.loading.report import LoadReport, Rehearsal
    from delaystore.spark.rejections import Rejections
    from delaystore.spark.staging import Cleaned

_WIDTH: Final = 40


def load_document(report: "LoadReport") -> dict[str, Any]:
    """A load, as JSON."""
    return {
        "load_id": report.load_id,
        "stored": report.stored,
        "skipped": report.skipped,
        "rejected": report.rejections.count,
        "rejections": _rejections(report.rejections),
        "seconds": round(report.seconds, 3),
        "finished_before": instant(report.finished_before),
        "due": _due(report.due),
    }


def rehearsal_document(report: "Rehearsal") -> dict[str, Any]:
    """What would be loaded, as JSON."""
    return {
        "load_id": report.load_id,
        "would_store": report.would_store,
        "obstacles": list(report.obstacles),
        "duplicates": {"in_the_files": report.twice, "waiting": report.waiting, "examples": list(report.examples)},
        "rejected": report.rejections.count,
        "rejections": _rejections(report.rejections),
        "seconds": round(report.seconds, 3),
        "due": _due(report.due),
    }


def cleanup_document(cleaned: "Cleaned") -> dict[str, Any]:
    """What was removed, as JSON."""
    return {"loads": list(cleaned.loads), "tables": list(cleaned.tables), "held": list(cleaned.held)}


def print_load(report: "LoadReport") -> None:
    """A load, for people."""
    messages = "messages" if report.stored is None else counted(report.stored, "message")
    if report.finished_before is not None:
        at = instant(report.finished_before)
        tell(f"nothing to do: the load {report.load_id!r} was finished at {at}, with {messages}")
        return
    rate = f", {report.stored / report.seconds:,.0f}/s" if report.stored is not None and report.seconds else ""
    tell(f"{messages} loaded{f' in {report.seconds:.1f} s{rate}' if report.seconds else ''}")
    if report.skipped:
        tell(f"{counted(report.skipped, 'duplicate')} skipped")
    _tell_rejections(report.rejections, "rejected")
    _plot(report.due)
    if report.guarantee is not None:
        say(f"note: {report.guarantee}")
    elif report.load_id is None:
        say("note: without --load-id a load that is run again is not recognised")


def print_rehearsal(report: "Rehearsal") -> None:
    """What would be loaded, for people."""
    if report.obstacles:
        tell(f"a dry run: the load would fail, because {', and '.join(report.obstacles)}; nothing was written")
    else:
        tell(f"a dry run: {counted(report.would_store, 'message')} would be loaded; nothing was written")
    if report.waiting is None:
        say("note: this store cannot list what waits in it; those that wait already would be left out")
    if report.twice:
        tell(f"{counted(report.twice, 'row')} with a message_id that came before{_such_as(report.examples)}")
    if report.waiting:
        tell(f"{counted(report.waiting, 'message_id')} waiting in the store already{_such_as(report.examples)}")
    _tell_rejections(report.rejections, "would be rejected")
    _plot(report.due)


def print_cleanup(cleaned: "Cleaned") -> None:
    """What was removed, for people."""
    for load in cleaned.loads:
        tell(f"forgotten: the load {load!r}, which was never finished")
    for table in cleaned.tables:
        tell(f"dropped: the table {table}")
    for table in cleaned.held:
        say(f"left: the table {table}, which a process still works on; try again later")
    if not (cleaned.loads or cleaned.tables or cleaned.held):
        tell("nothing to remove")


def _tell_rejections(rejections: "Rejections", what: str) -> None:
    if not rejections.count:
        return
    tell(f"{counted(rejections.count, 'row')} {what}:")
    for text, reason in sorted(rejections.reasons.items(), key=lambda item: (-item[1].count, item[0])):
        tell(f"  {reason.count:,} x {text}{_such_as(reason.examples[:1])}")


def _such_as(examples: Sequence[str]) -> str:
    return f" (such as {', '.join(examples)})" if examples else ""


def _plot(bars: "Sequence[Bar]") -> None:
    highest = max((bar.count for bar in bars), default=0)
    if not highest:
        return
    rows = [
        (f"{bar.start:%Y-%m-%d %H:%M}Z", f"{bar.count:,}", "█" * (-(-_WIDTH * bar.count // highest))) for bar in bars
    ]
    print_table(("due from", "about", ""), rows, right=("about",), unbroken=("due from", "about"))


def _rejections(rejections: "Rejections") -> list[dict[str, Any]]:
    return [
        {"reason": text, "count": reason.count, "examples": list(reason.examples)}
        for text, reason in sorted(rejections.reasons.items())
    ]


def _due(bars: "Sequence[Bar]") -> list[dict[str, Any]]:
    return [{"start": instant(bar.start), "about": bar.count} for bar in bars]
