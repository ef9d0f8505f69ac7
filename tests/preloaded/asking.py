"""The `delaystore` that a shell finds: has its command run by a fork of `serving.py`, and ends as that does.

It is copied beside the socket, and run without site-packages, which begins quickest.
"""

import json
import os
import signal
import socket
import sys

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Ask, pass signals on, and end as the fork did."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(os.path.join(os.path.dirname(__file__), "socket"))  # pathlib begins slowly
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as a shell's background jobs do
    request = {
        "arguments": sys.argv[1:],
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "ignores_interrupts": ignored,
    }
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    connection.recv(64)  # its process id
    for number in SIGNALS[ignored:]:
        signal.signal(number, lambda number, _: connection.send(bytes([number])))
    code = os.waitstatus_to_exitcode(int(connection.recv(64)))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
