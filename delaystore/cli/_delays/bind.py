"""`delaystore delays bind`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.cli._broker_options import BrokerUrl, DryRun, ManagementUrl
from delaystore.cli._broker_reports import finding_document, part_document
from delaystore.cli._delays.options import DEFAULT_CASCADE, CascadeName, open_cascade
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, print_table, say
from delaystore.errors import ConfigurationError
from delaystore.names import control_character
from delaystore.transports.rabbitmq.topology.cascades import Routing

if TYPE_CHECKING:
    from delaystore.cascades import BindingResult


def bind(
    destinations: Annotated[list[str], typer.Argument(metavar="DESTINATION...", help="Queues, or their exchanges.")],
    routing: Annotated[
        Routing, typer.Option(help="direct: to the queue; conventional: to the exchange of the same name.")
    ] = Routing.DIRECT,
    dry_run: DryRun = False,
    broker: BrokerUrl = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Bind destinations to a cascade's end.

    Each is bound so that it gets its own messages and no others. A failure is reported, and the rest are bound. With
    the management API, bindings of other programs that mix up messages are named. Exit code 1: a destination could not
    be bound. Exit code 2, and nothing is bound: a name with a control character, such as a line break.
    """
    from delaystore import cascades

    _check_names(destinations)
    with open_cascade(broker, cascade, management) as (client, topology):
        results = cascades.bind(client, topology, destinations, routing, dry_run=dry_run)
    if as_json:
        _print_json(cascade, results, routing, dry_run)
    else:
        _print_text(results, dry_run)
    if any(result.failure is not None for result in results):
        raise typer.Exit(1)


def _check_names(destinations: Sequence[str]) -> None:
    bad = [destination for destination in destinations if control_character(destination) is not None]
    if bad:
        raise ConfigurationError(f"no destination may contain a control character: {', '.join(map(repr, bad))}")


def _print_json(cascade: str, results: "Sequence[BindingResult]", routing: Routing, dry_run: bool) -> None:
    documents = [
        {
            "destination": result.destination,
            "bound": result.failure is None and not dry_run,
            "failure": result.failure,
            "bindings": [part_document(binding) for binding in result.bindings],
            "collisions": None if result.collisions is None else [finding_document(one) for one in result.collisions],
        }
        for result in results
    ]
    print_document({"cascade": cascade, "routing": routing.value, "dry_run": dry_run, "results": documents})


def _print_text(results: "Sequence[BindingResult]", dry_run: bool) -> None:
    done = "would be bound" if dry_run else "bound"
    rows = [
        (result.destination, done if result.failure is None else "failed", result.failure or "") for result in results
    ]
    print_table(("destination", "result", "why"), rows, unbroken=("result",))
    for result in results:
        for finding in result.collisions or ():
            say(f"caution: {finding}")
    if any(result.collisions is None for result in results):
        say("not checked: bindings of other programs that mix up messages; only the management API lists them")
