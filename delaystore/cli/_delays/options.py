"""The options that several commands of `delaystore delays` share, and what they name.

Each option is an environment variable as well.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from delaystore.cli._options import environment_option, required
from delaystore.transports.rabbitmq.topology import CascadeTopology, topology_named

if TYPE_CHECKING:
    from delaystore.cascades import BrokerClient

CascadeName = Annotated[
    str,
    environment_option(
        "--cascade",
        "nservicebus-v2, nservicebus-v1, celery[:QUEUE_TYPE[:PREFIX]], skipping[:PREFIX[:LEVELS[:ms]]] or "
        "custom:PREFIX[:LEVELS[:ms]].",
        metavar="NAME",
    ),
]
"""Give it the default `DEFAULT_CASCADE`."""
DEFAULT_CASCADE = "nservicebus-v2"


@contextmanager
def open_cascade(
    broker: str | None, cascade: str, management: str | None
) -> Iterator[tuple["BrokerClient", CascadeTopology]]:
    """The broker, for the block, and the cascade that the options name. Nothing is connected yet.

    ConfigurationError where no broker is given, for a URL that cannot work, or for a name that is no cascade's.
    """
    from delaystore.cascades import BrokerClient

    topology = topology_named(cascade)
    url = required(broker, "broker", "--broker URL", "DELAYSTORE_BROKER")
    with BrokerClient(url, management or None) as client:
        yield client, topology
