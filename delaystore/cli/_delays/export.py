"""`delaystore delays export`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from delaystore.cli._delays.options import DEFAULT_CASCADE, CascadeName
from delaystore.cli._options import Json, environment_option
from delaystore.cli._output import print_document, say, write
from delaystore.transports.rabbitmq.topology import CascadeTopology, topology_named


class Format(StrEnum):
    """What `delays export` can write."""

    TERRAFORM = "terraform"
    DEFINITIONS = "definitions"
    MERMAID = "mermaid"


def export(
    form: Annotated[
        Format,
        environment_option(
            "--format",
            "Terraform JSON for the provider cyrilgdn/rabbitmq, a file for rabbitmqctl import_definitions, "
            "or a Mermaid diagram.",
            group="delays_export",
        ),
    ],
    cascade: CascadeName = DEFAULT_CASCADE,
    vhost: Annotated[
        str, typer.Option(metavar="NAME", help="The virtual host; it must exist. No matter for a diagram.")
    ] = "/",
    full: Annotated[bool, typer.Option("--full", help="Draw all levels in the diagram, however many.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write. Default: standard output.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a cascade as infrastructure as code, or as a diagram. Asks no broker.

    Destinations are bound by `delaystore delays bind`, not by what this writes. With --json, what would be written is
    the text in `content`, or the file named in `file` holds it.
    """
    text = _text(form, topology_named(cascade), vhost, full)
    if output is not None:
        output.write_text(text, encoding="utf-8")
        say(f"wrote {output}")
    if as_json:
        content, file = (text, None) if output is None else (None, str(output))
        print_document({"format": form.value, "cascade": cascade, "content": content, "file": file})
    elif output is None:
        write(text)


def _text(form: Format, topology: CascadeTopology, vhost: str, full: bool) -> str:
    from delaystore.cascades.delivery_limits import limit_policy
    from delaystore.cascades.exports import definitions, mermaid, terraform
    from delaystore.cascades.policies import complete_layout, needs_policy, policy_for, undeliverable_name

    if form is Format.MERMAID:
        by_policy = undeliverable_name(topology) if needs_policy(topology) else None
        return mermaid(topology, full=full, undeliverable=by_policy)
    policies = [policy for policy in (policy_for(topology), limit_policy(topology)) if policy is not None]
    make = terraform if form is Format.TERRAFORM else definitions
    document = make(complete_layout(topology), vhost, policies)
    return json.dumps(document, indent=2) + "\n"
