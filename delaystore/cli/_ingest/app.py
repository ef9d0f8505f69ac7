"""`delaystore ingest`."""

import typer

from delaystore.cli._examples import epilog
from delaystore.cli._ingest.create import create
from delaystore.cli._ingest.delete import delete
from delaystore.cli._ingest.run import run
from delaystore.cli._ingest.status import status
from delaystore.cli._ingest.verify import verify

ingest_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
"""The group that this one belongs to reports errors, in one line each."""

ingest_app.callback()(run)
for name, command in (("create", create), ("verify", verify), ("status", status), ("delete", delete)):
    ingest_app.command(name, epilog=epilog(f"ingest {name}"))(command)
