"""Which queue a destination means here."""

from typing import Final
from urllib.parse import unquote_to_bytes

from delaystore.errors import UnsupportedMessageError

_QUEUES: Final = "/queues/"


def queue_of(destination: str) -> str:
    """The name of the queue that `destination` (a name, or RabbitMQ's `/queues/NAME`, percent-encoded) means.

    Raises UnsupportedMessageError for any other address: a SQL queue has no exchanges.
    """
    if not destination.startswith("/"):
        return destination
    if not destination.startswith(_QUEUES):
        raise UnsupportedMessageError(
            f"the destination {destination!r} is no queue; a SQL queue takes a queue name or /queues/NAME"
        )
    try:
        return unquote_to_bytes(destination.removeprefix(_QUEUES)).decode()
    except UnicodeDecodeError:
        raise UnsupportedMessageError(f"the destination {destination!r} is not percent-encoded UTF-8") from None
