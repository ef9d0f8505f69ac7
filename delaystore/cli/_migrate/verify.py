"""`delaystore migrate verify`."""

from typing import TYPE_CHECKING

import typer

from delaystore.amounts import counted
from delaystore.cli._migrate import options
from delaystore.cli._migrate.reports import (
    REJECTED_REMAIN,
    collected,
    print_counts,
    say_set_aside,
    verification_document,
)
from delaystore.cli._options import Json
from delaystore.cli._output import say, tell

if TYPE_CHECKING:
    from delaystore.migrations.runner import Verification


def verify(
    source: options.From = None,
    target: options.To = None,
    endpoint: options.EndpointName = None,
    all_endpoints: options.AllEndpoints = False,
    cutoff_time: options.CutoffTime = None,  # noqa: ARG001 - taken by all these commands, so that a line can be repeated
    as_json: Json = False,
) -> None:
    """Count what became of all that the last run took, and compare checksums where the target can be read.

    Changes nothing. Exit code 1: it does not add up. 3: it adds up, and rejected messages remain, of this run or an
    earlier one.
    """
    from delaystore.migrations import runner

    options.check_endpoints(endpoint, all_endpoints)
    options.given_target(target)
    found: list[Verification] = []
    with options.opened_source(source) as from_source, collected(as_json) as document:
        document["good"] = False
        for name in options.chosen_endpoints(from_source, endpoint, begun=True):
            with options.opened_target(target, name) as to_target:
                verified = runner.verify(from_source, to_target, name)
            found.append(verified)
            document["endpoints"].append(verification_document(name, verified))
            if not as_json:
                _print(name, verified)
        document["good"] = all(verified.good for verified in found)
    if any(verified.findings for verified in found):
        raise typer.Exit(1)
    if not document["good"]:
        raise typer.Exit(REJECTED_REMAIN)


def _print(name: str, verified: "Verification") -> None:
    """The counts, what does not add up, and what is worth knowing."""
    print_counts([(name, verified.counts)])
    if verified.good:
        equal = ", and the checksums are equal" if verified.waiting == verified.moved else ""
        tell(f"good: {name}: everything is accounted for{equal}")
    for finding in verified.findings:
        tell(f"not verified: {name}: {finding}")
    if verified.set_aside:
        tell(f"not verified: {name}: {counted(verified.set_aside, 'rejected message')} remain, which nobody dispatches")
        say_set_aside(name, verified.counts.rejected, verified.earlier)
    for remark in verified.remarks:
        say(f"{name}: {remark}")
