"""`delaystore migrate verify`."""

from typing import TYPE_CHECKING

import typer

from delaystore.cli.migrate.opening import (
    check_endpoints,
    chosen_endpoints,
    given_target,
    opened_source,
    opened_target,
)
from delaystore.cli.migrate.options import AllEndpoints, CutoffTime, EndpointName, From, To
from delaystore.cli.options import Json
from delaystore.cli.output import print_document, say, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delaystore.migrations.runner import Verdict


def verify(
    source: From = None,
    target: To = None,
    endpoint: EndpointName = None,
    all_endpoints: AllEndpoints = False,
    cutoff_time: CutoffTime = None,  # noqa: ARG001 - taken by all these commands, so that a line can be repeated
    as_json: Json = False,
) -> None:
    """Count what became of all that the last run took, and compare checksums where the target can be read.

    Changes nothing. Exit code 1: it does not add up.
    """
    from delaystore.cli.migrate.documents import verdict_document
    from delaystore.migrations import runner

    check_endpoints(endpoint, all_endpoints)
    given_target(target)
    verdicts: list[tuple[str, Verdict]] = []
    with opened_source(source) as from_source:
        for name in chosen_endpoints(from_source, endpoint):
            if all_endpoints and from_source.run(name) is None:
                continue
            with opened_target(target, name) as to_target:
                verdicts.append((name, runner.verify(from_source, to_target, name)))
    good = all(verdict.good for _, verdict in verdicts)
    if as_json:
        endpoints = [verdict_document(name, verdict) for name, verdict in verdicts]
        print_document({"good": good, "endpoints": endpoints})
    else:
        print_verdicts(verdicts)
    if not good:
        raise typer.Exit(1)


def print_verdicts(verdicts: "Sequence[tuple[str, Verdict]]") -> None:
    """The counts, what does not add up, and what is worth knowing."""
    from delaystore.cli.migrate.tables import print_counts

    print_counts([(name, verdict.counts) for name, verdict in verdicts])
    for name, verdict in verdicts:
        if verdict.good:
            tell(f"good: {name}: everything is accounted for" + ("" if verdict.held is None else _compared(verdict)))
        for finding in verdict.findings:
            tell(f"not verified: {name}: {finding}")
        for remark in verdict.remarks:
            say(f"{name}: {remark}")


def _compared(verdict: "Verdict") -> str:
    return ", and the checksums are equal" if verdict.held == verdict.moved else ""
