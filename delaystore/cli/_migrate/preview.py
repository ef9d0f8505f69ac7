"""`delaystore migrate preview`."""

import typer

from delaystore.cli._migrate import options
from delaystore.cli._migrate.reports import check_document, print_checks, print_problems
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, say
from delaystore.times import time_text


def preview(
    source: options.From = None,
    target: options.To = None,
    endpoint: options.EndpointName = None,
    all_endpoints: options.AllEndpoints = False,
    cutoff_time: options.CutoffTime = None,
    allow_rejects: options.AllowRejects = False,
    as_json: Json = False,
) -> None:
    """Say what a run would move, and what hinders it. Changes nothing.

    Every message is read, and the target asked whether it would take it. Exit code 1: something hinders.
    """
    from delaystore.cli._progress_bar import ProgressBar
    from delaystore.migrations.runner import check

    options.check_endpoints(endpoint, all_endpoints)
    options.given_target(target)
    options.check_different(source, target)
    cutoff = options.cutoff_of(cutoff_time)
    found = []
    with options.opened_source(source) as from_source:
        for name in options.chosen_endpoints(from_source, endpoint):
            with options.opened_target(target, name) as to_target:
                with ProgressBar(transient=True) as bar:
                    found.append(check(from_source, to_target, name, cutoff, every_message=True, listener=bar.show))
                label = to_target.label
    hinders = any(not (allow_rejects and problem.messages) for one in found for problem in one.hindrances)
    if as_json:
        endpoints = [check_document(one) for one in found]
        print_document({"good": not hinders, "source": from_source.label, "target": label, "endpoints": endpoints})
    else:
        print_checks(found)
        print_problems(list(dict.fromkeys(problem for one in found for problem in one.problems)))
        for one in found:
            if one.unfinished is not None:
                begun = time_text(one.unfinished.started)
                say(f"unfinished: a run of {one.endpoint} to {one.unfinished.parameters.target}, begun {begun}")
        if hinders:
            say("a run would be refused" + ("" if allow_rejects else "; --allow-rejects overlooks single messages"))
    if hinders:
        raise typer.Exit(1)
