"""From options to brokers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from delaystore.cli.opening import required

if TYPE_CHECKING:
    from delaystore.transports.rabbitmq.administration import Administered


@contextmanager
def administered(broker: str | None, management: str | None) -> Iterator["Administered"]:
    """The broker that the options name, for the block.

    Nothing is connected yet. ConfigurationError where no broker is given, or for a URL that cannot work.
    """
    from delaystore.transports.rabbitmq.administration import Administered

    url = required(broker, "broker", "--broker URL", "DELAYSTORE_BROKER")
    with Administered(url, management or None) as opened:
        yield opened
