"""Who this process is, for others to read."""

import os
import socket
from datetime import UTC, datetime


def this_process() -> str:
    """The computer, the process, and since when."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return f"process {os.getpid()} on {socket.gethostname()}, since {since}"
