"""`delaystore migrate cleanup`."""

from typing import Annotated

import typer

from delaystore.cli._migrate import options
from delaystore.cli._migrate.reports import collected, verification_document
from delaystore.cli._options import Json
from delaystore.cli._output import tell
from delaystore.times import time_text


def cleanup(
    source: options.From = None,
    target: options.To = None,
    endpoint: options.EndpointName = None,
    all_endpoints: options.AllEndpoints = False,
    cutoff_time: options.CutoffTime = None,  # noqa: ARG001 - taken by all these commands, so that a line can be repeated
    force: Annotated[
        bool, typer.Option("--force", help="Although verify does not pass, or rejected messages would be deleted.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete the tables of the last run, the record of what was moved. Only after verify passes.

    Refuses while anything is pending, and, without --force, where something was rejected and not given back.
    """
    from delaystore.migrations import runner

    options.check_endpoints(endpoint, all_endpoints)
    options.given_target(target)
    with options.opened_source(source) as from_source, collected(as_json) as document:
        for name in options.chosen_endpoints(from_source, endpoint, begun=True):
            with options.opened_target(target, name) as to_target:
                verified = runner.clean_up(from_source, to_target, name, force=force)
            document["endpoints"].append(verification_document(name, verified))
            if not as_json:
                tell(f"cleaned up: {name}, run of {time_text(verified.run.started)}")
