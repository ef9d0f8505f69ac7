"""Where the process begins. It imports the command line inside `main`, where an interrupt is handled."""

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Run the command line for the process's arguments, and exit as `delaystore.cli.main.main` does."""
    try:
        _run()
    except KeyboardInterrupt:
        with suppress(OSError):
            os.write(2, b"stopped\n")
        sys.exit(128 + signal.SIGINT)


def _run() -> None:
    from delaystore.cli._signals import end_by_default, saying_stopped

    end_by_default(signal.SIGTERM)
    from delaystore.errors import MissingDependencyError
    from delaystore.registry import needed_for

    try:
        with saying_stopped(), needed_for("the command line"):
            from delaystore.cli.main import command
            from delaystore.cli.main import main as run

            command()
    except MissingDependencyError as error:
        os.write(2, f"error: {error}\n".encode())
        sys.exit(2)
    run()
