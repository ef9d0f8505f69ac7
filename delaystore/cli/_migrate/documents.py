"""What the commands of `delaystore migrate` say in JSON. The keys are stable."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from delaystore.cli._documents import instant

if TYPE_CHECKING:
    from delaystore.migrations.abc import Report, Run
    from delaystore.migrations.runner import RunCheck, Verification


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
        "remarks": list(verified.remarks),
    }
