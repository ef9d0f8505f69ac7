"""Taking a server away."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from delaystore.testing import Outage
from tests.servers.server import Server


def outage_of(server: Server) -> Outage:
    """Makes blocks in which `server` is stopped; it keeps its data."""
    return partial(_away, server)


@contextmanager
def _away(server: Server) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()
