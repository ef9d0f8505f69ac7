"""What `delaystore load` says of a load."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from delaystore.amounts import counted
from delaystore.cli._load.options import as_typed
from delaystore.cli._output import print_document, say, tell
from delaystore.documents import instant

if TYPE_CHECKING:
    from delaystore.loading.rejects import Rejects
    from delaystore.loading.request import DryRun, LoadReport
    from delaystore.loading.staging import Cleaned

_OBSTACLES: Final[Mapping[str, str]] = {
    "rejects": "rows cannot be messages (see --rejects)",
    "twice": "a message_id comes twice (see --on-duplicate)",
    "waiting": "a message_id waits in the store already (see --on-duplicate)",
}
"""Why a load would fail, in words."""


def report_load(report: "LoadReport", *, as_json: bool) -> None:
    """Say what was loaded."""
    if as_json:
        print_document(
            {
                "load_id": report.load_id,
                "stored": report.stored,
                "skipped": report.skipped,
                "rejected": report.rejects.count,
                "rejections": _rejections(report.rejects),
                "seconds": round(report.seconds, 3),
                "finished_before": instant(report.finished_before),
                "differs": report.differs,
            }
        )
        return
    messages = "messages" if report.stored is None else counted(report.stored, "message")
    if report.finished_before is not None:
        at = instant(report.finished_before)
        tell(f"nothing to do: the load {report.load_id!r} was finished at {at}, with {messages}")
        if report.differs:
            rows = counted(report.rows or 0, "row")
            say(f"warning: the files have {rows} now; load other data under another --load-id")
        return
    if report.stored == 0 and not report.skipped and report.load_id is not None:
        say(f"warning: the load {report.load_id!r} had no messages, and counts as finished")
    rate = f", {report.stored / report.seconds:,.0f}/s" if report.stored is not None and report.seconds else ""
    tell(f"{messages} loaded{f' in {report.seconds:.1f} s{rate}' if report.seconds else ''}")
    if report.skipped:
        tell(f"{counted(report.skipped, 'duplicate')} skipped")
    _tell_rejects(report.rejects, "rejected")
    if report.guarantee is not None:
        say(f"note: {report.guarantee}")
    elif report.load_id is None:
        say("note: without --load-id a load that is run again is not recognised")


def report_dry_run(report: "DryRun", *, as_json: bool) -> None:
    """Say what would be loaded."""
    obstacles = [_OBSTACLES[obstacle] for obstacle in report.obstacles]
    if as_json:
        print_document(
            {
                "load_id": report.load_id,
                "would_store": report.would_store,
                "obstacles": obstacles,
                "duplicates": {
                    "in_the_files": report.twice,
                    "waiting": report.waiting,
                    "examples": list(report.examples),
                },
                "rejected": report.rejects.count,
                "rejections": _rejections(report.rejects),
                "seconds": round(report.seconds, 3),
            }
        )
        return
    if obstacles:
        tell(f"a dry run: the load would fail, because {', and '.join(obstacles)}; nothing was written")
    else:
        tell(f"a dry run: {counted(report.would_store, 'message')} would be loaded; nothing was written")
    if report.waiting is None:
        say("note: this store cannot list what waits in it; those that wait already would be left out")
    if report.twice:
        tell(f"{counted(report.twice, 'row')} with a message_id that came before{_such_as(report.examples)}")
    if report.waiting:
        tell(f"{counted(report.waiting, 'message_id')} waiting in the store already{_such_as(report.examples)}")
    _tell_rejects(report.rejects, "would be rejected")


def report_cleanup(cleaned: "Cleaned", *, as_json: bool) -> None:
    """Say what was removed."""
    if as_json:
        print_document({"loads": list(cleaned.loads), "tables": list(cleaned.tables), "held": list(cleaned.in_use)})
        return
    for load in cleaned.loads:
        tell(f"forgotten: the load {load!r}, which was never finished")
    for table in cleaned.tables:
        tell(f"dropped: the table {table}")
    for table in cleaned.in_use:
        say(f"left: the table {table}, which a process still works on; try again later")
    if not (cleaned.loads or cleaned.tables or cleaned.in_use):
        tell("nothing to remove")


def _tell_rejects(rejects: "Rejects", what: str) -> None:
    if not rejects.count:
        return
    tell(f"{counted(rejects.count, 'row')} {what}:")
    for text, reason in sorted(rejects.reasons.items(), key=lambda item: (-item[1].count, item[0])):
        tell(f"  {reason.count:,} x {as_typed(text)}{_such_as(reason.examples[:1])}")


def _such_as(examples: Sequence[str]) -> str:
    return f" (such as {', '.join(examples)})" if examples else ""


def _rejections(rejects: "Rejects") -> list[dict[str, Any]]:
    return [
        {"reason": as_typed(text), "count": reason.count, "examples": list(reason.examples)}
        for text, reason in sorted(rejects.reasons.items())
    ]
