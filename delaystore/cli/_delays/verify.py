"""`delaystore delays verify`."""

from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.cli._broker_options import BrokerUrl, ManagementUrl
from delaystore.cli._broker_reports import finding_document, say_unchecked
from delaystore.cli._delays.options import DEFAULT_CASCADE, CascadeName, open_cascade
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, print_table, tell

if TYPE_CHECKING:
    from delaystore.cascades import Verification


def verify(
    passive: Annotated[
        bool, typer.Option("--passive", help="This user may not declare: leave its permissions out.")
    ] = False,
    broker: BrokerUrl = None,
    cascade: CascadeName = DEFAULT_CASCADE,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Verify that a broker has a cascade as it should be. Changes nothing.

    Names what is wrong with the broker's version and feature flags, the user's permissions, and each part of the
    cascade, and destinations that get messages for others. Names what could not be checked, too: that is more without
    the management API. Exit code 1: something is wrong.
    """
    from delaystore import cascades

    with open_cascade(broker, cascade, management) as (client, topology):
        found = cascades.verify(client, topology, passive=passive)
    if as_json:
        _print_json(cascade, found)
    else:
        _print_text(cascade, found)
    if not found.good:
        raise typer.Exit(1)


def _print_json(cascade: str, found: "Verification") -> None:
    print_document(
        {
            "good": found.good,
            "cascade": cascade,
            "broker": found.broker,
            "version": found.version,
            "findings": [finding_document(finding) for finding in found.findings],
            "unchecked": list(found.unchecked),
        }
    )


def _print_text(cascade: str, found: "Verification") -> None:
    if found.good:
        tell(f"good: {cascade} on {found.broker} (RabbitMQ {found.version})")
    else:
        rows = [(finding.kind.value, finding.subject, finding.text) for finding in found.findings]
        print_table(("finding", "of", "what"), rows, unbroken=("finding",))
    say_unchecked(found.unchecked)
