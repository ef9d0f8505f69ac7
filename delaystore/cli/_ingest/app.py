"""`delaystore ingest`."""

import typer

from delaystore.cli._examples import epilog
from delaystore.cli._ingest.create import create
from delaystore.cli._ingest.delete import delete
from delaystore.cli._ingest.retry import retry
from delaystore.cli._ingest.run import run
from delaystore.cli._ingest.status import status
from delaystore.cli._ingest.verify import verify

ingest_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
"""The group that this one belongs to reports errors, in one line each."""

ingest_app.callback()(run)
ingest_app.command("create", epilog=epilog("ingest create"))(create)
ingest_app.command("verify", epilog=epilog("ingest verify"))(verify)
ingest_app.command("status", epilog=epilog("ingest status"))(status)
ingest_app.command("retry", epilog=epilog("ingest retry"))(retry)
ingest_app.command("delete", epilog=epilog("ingest delete"))(delete)
