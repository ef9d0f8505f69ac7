"""Where the process begins. It imports the command line inside `main`, where an interrupt is handled."""

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Run the command line for the process's arguments, and exit as `delaystore.cli.main.main` does."""
    try:
        from delaystore.cli.main import main as run

        run()
    except KeyboardInterrupt:
        with suppress(OSError):
            os.write(2, b"stopped\n")
        sys.exit(128 + signal.SIGINT)
