"""The `delaystore` command."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, cast

import typer
import typer.core

from delaystore.cli.changing import cancel, reschedule
from delaystore.cli.delays.app import delays_app
from delaystore.cli.demo.command import demo
from delaystore.cli.dispatch import dispatch
from delaystore.cli.entry import INTERRUPTED
from delaystore.cli.health import health
from delaystore.cli.listing import count, list_messages, show
from delaystore.cli.load.command import load
from delaystore.cli.migrate.app import migrate_app
from delaystore.cli.options import ENVIRONMENT_PREFIX
from delaystore.cli.output import ReaderGoneError, let_go_of_what_cannot_be_written, say, show_any_character
from delaystore.cli.receive import receive
from delaystore.cli.send import send
from delaystore.cli.setup import setup
from delaystore.errors import DelaystoreError

READER_GONE: Final = 141
"""What shells say of a program that SIGPIPE ended, which is how other tools end then: 128 + 13."""
_UsageError: Final = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
"""typer exports no name for what it raises for a wrong call."""


class Commands(typer.core.TyperGroup):
    """Ends every error of ours, and every wrong call, in one line and exit code 2."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse what precedes the command; without any argument: show the help."""
        if not args:
            return super().make_context(info_name, args, parent, **extra)
        with _errors_in_one_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _errors_in_one_line():
            return super().invoke(ctx)


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except (ReaderGoneError, BrokenPipeError):
        raise typer.Exit(READER_GONE) from None
    except _UsageError as error:
        raise _failure(f"{error.format_message().rstrip('.')}; --help says more") from None
    except DelaystoreError as error:
        raise _failure(str(error)) from None
    except OSError as error:
        raise _failure(": ".join(str(part) for part in (error.filename, error.strerror or error) if part)) from None
    except KeyboardInterrupt:
        say("stopped")
        raise typer.Exit(INTERRUPTED) from None


def _failure(reason: str) -> typer.Exit:
    say(f"error: {' '.join(reason.split())}")
    return typer.Exit(2)


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
    ("load", load),
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
app.add_typer(delays_app, name="delays")
app.add_typer(migrate_app, name="migrate")


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
    """Run the command line (None: the process's own) and exit: 0 done, 1 not done, 2 an error.

    From 128: what a signal ended, as shells count.
    """
    show_any_character()
    try:
        app(args=None if arguments is None else list(arguments), prog_name="delaystore")
    finally:
        let_go_of_what_cannot_be_written()
