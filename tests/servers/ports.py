"""Free TCP ports on the loopback interface."""

import random
import socket

# Below Linux' ephemeral range (32768 and up): no outgoing connection takes a killed server's port before it restarts,
# and no client that reconnects in a loop connects to itself.
PORTS = range(18000, 32000)

_given: set[int] = set()


def free_port() -> int:
    """A port that nothing listens on, and that this process was not given before."""
    for port in random.sample(PORTS, 1000):
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise RuntimeError(f"no free port among {PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
