"""What the commands of `delaystore migrate` say in JSON. Keys are stable."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from delaystore.cli.documents import instant

if TYPE_CHECKING:
    from delaystore.migrations.abc import Problem, Rejected, Report, Run, RunCounts
    from delaystore.migrations.runner import Examination, Verdict


def examination_document(found: "Examination") -> dict[str, Any]:
    """What a preview found out about an endpoint."""
    preview = found.preview
    return {
        "endpoint": found.endpoint,
        "count": None if preview is None else preview.count,
        "staying": None if preview is None else preview.staying,
        "earliest": None if preview is None else instant(preview.earliest),
        "latest": None if preview is None else instant(preview.latest),
        "destinations": {} if preview is None else dict(preview.destinations),
        "immovable": found.immovable,
        "problems": problem_documents(found.problems),
        "unfinished_run": run_document(found.unfinished),
    }


def problem_documents(problems: "Sequence[Problem]") -> list[dict[str, Any]]:
    """Why a run would be refused, and warnings."""
    return [
        {"subject": one.subject, "text": one.text, "hinders": one.fatal, "messages": one.messages} for one in problems
    ]


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


def counts_document(counts: "RunCounts") -> dict[str, int]:
    """What became of its rows."""
    return {
        "prepared": counts.prepared,
        "pending": counts.pending,
        "moved": counts.moved,
        "rejected": counts.rejected,
        "returned": counts.returned,
    }


def report_document(endpoint: str, report: "Report") -> dict[str, Any]:
    """What a run or an abort did."""
    return {
        "endpoint": endpoint,
        "run": run_document(report.run),
        "counts": counts_document(report.counts),
        "seconds": round(report.seconds, 3),
        "sent": report.sent,
        "rate": None if not report.seconds else round(report.sent / report.seconds, 1),
        "resumed": report.resumed,
        "rejections": rejection_documents(report.rejections),
        **report.extra,
    }


def rejection_documents(rejections: "Sequence[Rejected]") -> list[dict[str, str]]:
    """Rows that could not be moved, and why."""
    return [{"row_id": one.row_id, "reason": one.reason} for one in rejections]


def verdict_document(endpoint: str, verdict: "Verdict") -> dict[str, Any]:
    """What was compared."""
    return {
        "endpoint": endpoint,
        "good": verdict.good,
        "run": run_document(verdict.run),
        "counts": counts_document(verdict.counts),
        "source_checksum": str(verdict.moved),
        "target_checksum": None if verdict.held is None else str(verdict.held),
        "no_longer_there": verdict.gone,
        "findings": list(verdict.findings),
        "remarks": list(verdict.remarks),
    }
