"""Where the process begins: it imports the command line itself, so that an interrupt meanwhile is answered, too."""

import os
import sys
from contextlib import suppress
from typing import Final

INTERRUPTED: Final = 130
"""What shells say of a program that SIGINT ended: 128 + 2."""


def main() -> None:
    """Run the command line for the process's arguments, and exit as `delaystore.cli.main.main` does."""
    try:
        from delaystore.cli.main import main as run

        run()
    except KeyboardInterrupt:
        with suppress(OSError):
            os.write(2, b"stopped\n")
        sys.exit(INTERRUPTED)
