"""The `delaystore` command."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

from delaystore.cli.changing import cancel, reschedule
from delaystore.cli.demo.command import demo
from delaystore.cli.dispatch import dispatch
from delaystore.cli.health import health
from delaystore.cli.listing import count, list_messages, show
from delaystore.cli.options import ENVIRONMENT_PREFIX
from delaystore.cli.output import say
from delaystore.cli.receive import receive
from delaystore.cli.send import send
from delaystore.cli.setup import setup
from delaystore.errors import DelaystoreError

INTERRUPTED = 130
"""What shells say of a program that SIGINT ended: 128 + 2."""


class Commands(typer.core.TyperGroup):
    """Ends every error of ours in one line and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DelaystoreError as error:
            say(f"error: {' '.join(str(error).split())}")
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            say("stopped")
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"auto_envvar_prefix": ENVIRONMENT_PREFIX, "help_option_names": ["-h", "--help"]},
)
for name, command in (
    ("demo", demo),
    ("setup", setup),
    ("send", send),
    ("dispatch", dispatch),
    ("list", list_messages),
    ("show", show),
    ("count", count),
    ("cancel", cancel),
    ("reschedule", reschedule),
    ("receive", receive),
    ("health", health),
):
    app.command(name)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"delaystore {version('delaystore')}")
        raise typer.Exit


@app.callback()
def delaystore(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            allow_from_autoenv=False,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Messages that wait: stored durably, forwarded when they are due.

    Every option is an environment variable as well: DELAYSTORE_STORE, DELAYSTORE_TRANSPORT, DELAYSTORE_ENDPOINT,
    DELAYSTORE_SCHEMA, DELAYSTORE_TABLE; the others with their command's name, as DELAYSTORE_LIST_LIMIT.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (None: the process's own) and exit: 0 done, 1 not done, 2 an error, 130 interrupted."""
    app(args=None if arguments is None else list(arguments), prog_name="delaystore")
