"""`delaystore migrate verify`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from delaystore.cli._migrate import options
from delaystore.cli._migrate.reports import print_counts, verification_document
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, say, tell

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

    Changes nothing. Exit code 1: it does not add up.
    """
    from delaystore.migrations import runner

    options.check_endpoints(endpoint, all_endpoints)
    options.given_target(target)
    found: list[tuple[str, Verification]] = []
    with options.opened_source(source) as from_source:
        for name in options.chosen_endpoints(from_source, endpoint, begun=True):
            with options.opened_target(target, name) as to_target:
                found.append((name, runner.verify(from_source, to_target, name)))
    good = all(verified.good for _, verified in found)
    if as_json:
        endpoints = [verification_document(name, verified) for name, verified in found]
        print_document({"good": good, "endpoints": endpoints})
    else:
        _print(found)
    if not good:
        raise typer.Exit(1)


def _print(found: "Sequence[tuple[str, Verification]]") -> None:
    """The counts, what does not add up, and what is worth knowing."""
    print_counts([(name, verified.counts) for name, verified in found])
    for name, verified in found:
        if verified.good:
            equal = ", and the checksums are equal" if verified.waiting == verified.moved else ""
            tell(f"good: {name}: everything is accounted for{equal}")
        for finding in verified.findings:
            tell(f"not verified: {name}: {finding}")
        for remark in verified.remarks:
            say(f"{name}: {remark}")
