"""The `delaystore` command."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, Final, cast

import typer
import typer.core
import typer.main
from typing_extensions import override

from delaystore.cli._cascade import cascade_app
from delaystore.cli._changing import cancel, operations_app, reschedule
from delaystore.cli._commands import add_commands
from delaystore.cli._demo import demo
from delaystore.cli._dispatch import control, dispatch
from delaystore.cli._errors import errors_app
from delaystore.cli._export import export
from delaystore.cli._health import health
from delaystore.cli._help import HelpedRoot, explain, variables
from delaystore.cli._history import history
from delaystore.cli._ingress import ingress_app
from delaystore.cli._load import load
from delaystore.cli._loads import loads_app
from delaystore.cli._messages import count, list_messages, receive, show
from delaystore.cli._migrate import migrate_app
from delaystore.cli._options import ENVIRONMENT_PREFIX
from delaystore.cli._output import ReaderGoneError, drop_unwritable_output, print_note, show_any_character
from delaystore.cli._pausing import changes, destinations, limit, pause, resume
from delaystore.cli._schedules import schedules_app
from delaystore.cli._send import send
from delaystore.cli._serve import serve, web
from delaystore.cli._setup import endpoints, setup
from delaystore.cli._signals import INTERRUPTED, READER_GONE
from delaystore.cli._status import status
from delaystore.errors import ConfigurationError, DelaystoreError, UnknownLoadError, UnknownScheduleError
from delaystore.registry import missing
from delaystore.renames import COMMANDS, renamed_option, renamed_variable

_UsageError: Final = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
"""What typer raises for a wrong call; it exports no name for it."""


class Commands(HelpedRoot):
    """Reports each of our errors, and each wrong call, in one line, and exits with 2."""

    @override
    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the options before the command. Without any argument, show the help."""
        if not args or extra.get("resilient_parsing"):
            return super().make_context(info_name, args, parent, **extra)
        with _errors_in_one_line():
            _refuse_renamed(args)
            return super().make_context(info_name, args, parent, **extra)

    @override
    def invoke(self, ctx: Any) -> Any:
        with _errors_in_one_line():
            return super().invoke(ctx)


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except (ReaderGoneError, BrokenPipeError):
        raise typer.Exit(READER_GONE) from None
    except _UsageError as error:
        if renamed := _renamed_option(error):
            raise _failure(renamed) from None
        raise _failure(_wrong_call(error)) from None
    except (UnknownLoadError, UnknownScheduleError) as error:
        print_note(f"not found: {error}")
        raise typer.Exit(1) from None
    except DelaystoreError as error:
        raise _failure(str(error)) from None
    except ModuleNotFoundError as error:
        raise _failure(str(missing("this command", error))) from None
    except OSError as error:
        raise _failure(": ".join(str(part) for part in (error.filename, error.strerror or error) if part)) from None
    except KeyboardInterrupt:
        print_note("stopped")
        raise typer.Exit(INTERRUPTED) from None


_PLAIN: Final = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"\.? Choose from: (.*)$", r" (\1)"),
        (r"^No such (option|command):? ", r"there is no \1 "),
        (r" \(Possible options: (.*)\)$", r" (did you mean \1?)"),
        (r"\. Did you mean (.*)\?$", r" (did you mean \1?)"),
        (r"^Got unexpected extra argument\(s\) \((.*)\)$", r"too many arguments: \1"),
        (r"^Option '(\S+)' requires .*", r"\1 needs a value"),
        (r" \(env var: '\w+'\)", ""),
        (r"^(Missing|Invalid value for) (\w* ?)'([^']*)'\.?", r"\1 \2\3"),
        (r"^Missing ", "missing "),
        (r"^Invalid value", "invalid value"),
        (r"Value error, ", ""),
        (r"Input should be a valid integer.*", "write a whole number"),
        (r"Input should be a valid number.*", "write a number"),
        (r"Input should be a valid boolean.*", "write true or false"),
        (r"Input should be greater than or equal to (\S+)", r"the least value is \1"),
        (r"Input should be less than or equal to (\S+)", r"the greatest value is \1"),
    )
)
"""The words of the libraries that parse the command line and its values, and ours."""


def _wrong_call(error: Any) -> str:
    """The mistake in a call, the variable that has it, and the command that helps."""
    text = " ".join(error.format_message().split()).rstrip(".")
    for pattern, plain in _PLAIN:
        text = pattern.sub(plain, text)
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None:
        return f"{text}; see `delaystore --help`"
    if parameter is not None and (variable := _variable_of(parameter, context)) is not None:
        text = f"{variable}: {text}"
    return f"{text}; see `{context.command_path} --help`"


def _variable_of(parameter: Any, context: Any) -> str | None:
    """The environment variable that the value came from; None: it came from elsewhere."""
    source = context.get_parameter_source(parameter.name)
    if source is None or source.name != "ENVIRONMENT":
        return None
    names = (*variables(parameter, context), f"{context.auto_envvar_prefix}_{parameter.name.upper()}")
    return next((name for name in names if name in os.environ), None)


_HELP: Final = frozenset({"-h", "--help"})


def _refuse_renamed(arguments: Sequence[str]) -> None:
    """Raise ConfigurationError for the former name of a command, or a variable with a former name."""
    first, second = arguments[0], "".join(arguments[1:2])
    for words in (f"{first} {second}", first):
        renamed = COMMANDS.get(words)
        if renamed is None:
            continue
        is_group = renamed.startswith(f"{first} ") and words == first
        if not is_group or not second or (second.startswith("-") and second not in _HELP):
            raise ConfigurationError(f"{words!r} is now {renamed!r}")
    if _HELP.isdisjoint(arguments):
        for name in sorted(os.environ):
            if name.startswith(ENVIRONMENT_PREFIX) and (variable := renamed_variable(name)) is not None:
                raise ConfigurationError(f"{name} is now {variable}")


def _renamed_option(error: Exception) -> str | None:
    """The error for the former name of an option; None: it is another error."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option is None or context is None:
        return None
    renamed = renamed_option(context.command_path.partition(" ")[2], option)
    return None if renamed is None else f"{option} is now {renamed}"


def _failure(reason: str) -> typer.Exit:
    print_note(f"error: {' '.join(reason.split())}")
    return typer.Exit(2)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"auto_envvar_prefix": ENVIRONMENT_PREFIX, "help_option_names": ["-h", "--help"]},
)
add_commands(
    app,
    {
        "demo": demo,
        "setup": setup,
        "send": send,
        "load": load,
        "dispatch": dispatch,
        "serve": serve,
        "list": list_messages,
        "show": show,
        "count": count,
        "cancel": cancel,
        "reschedule": reschedule,
        "export": export,
        "pause": pause,
        "resume": resume,
        "limit": limit,
        "destinations": destinations,
        "changes": changes,
        "history": history,
        "receive": receive,
        "status": status,
        "endpoints": endpoints,
        "health": health,
        "web": web,
        "control": control,
        "help": explain,
    },
)
app.add_typer(errors_app, name="errors")
app.add_typer(operations_app, name="operations")
app.add_typer(loads_app, name="loads")
app.add_typer(schedules_app, name="schedules")
app.add_typer(cascade_app, name="cascade")
app.add_typer(ingress_app, name="ingress")
app.add_typer(migrate_app, name="migrate")


def _print_version(wanted: bool) -> None:
    if wanted:
        from delaystore import __version__

        typer.echo(f"delaystore {__version__}")
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
    """Delayed messages for RabbitMQ: send now, deliver later."""


@cache
def command() -> typer.core.TyperGroup:
    """All commands; to build them takes longer than most of them."""
    group = cast("typer.core.TyperGroup", typer.main.get_command(app))
    for parameter in group.params:
        if (parameter.name or "").endswith("_completion"):  # typer's own; no variable should install anything
            cast("typer.core.TyperOption", parameter).allow_from_autoenv = False
    return group


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line `arguments` (None: the process's own), and exit: 0 done, 1 not done, 2 an error.

    3: of a migration, done, except rejected messages, which remain. 128 and a signal's number: the signal ended it.
    """
    show_any_character()
    try:
        command()(args=None if arguments is None else list(arguments), prog_name="delaystore")
    finally:
        drop_unwritable_output()
