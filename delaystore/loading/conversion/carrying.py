"""Whether the transport that messages will be forwarded by can carry them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import pyarrow as pa

from delaystore.errors import InvalidMessageError
from delaystore.loading.conversion._values import values
from delaystore.message import DelayedMessage
from delaystore.sql.codec import decode_mapping
from delaystore.transports import Transport, open_transport

_MOST_REASONS: Final = 20
"""Different ones that a task tells: they may hold values of the row, and each is counted by itself."""
_OTHERWISE: Final = "the transport cannot carry it, for a reason such as others"


@dataclass(frozen=True)
class TransportCheck:
    """Asks the transport of a URL about each message, without a connection. Picklable; opened once in each process.

    Raises ConfigurationError and MissingDependencyError for a URL that cannot work.
    """

    url: str = field(repr=False)
    _told: set[str] = field(default_factory=set, compare=False, repr=False)

    def __post_init__(self) -> None:
        _opened(self.url)

    def reasons(self, staged: pa.RecordBatch) -> pa.Array:
        """By row of the schema STAGED: why its message cannot be carried; null: it can."""
        transport = _opened(self.url)
        return pa.array([self._reason(transport, message) for message in _messages(staged)], pa.string())

    def _reason(self, transport: Transport, message: DelayedMessage) -> str | None:
        try:
            transport.check(message)
        except InvalidMessageError as error:
            reason = f"the transport cannot carry it: {error}"
            if reason not in self._told and len(self._told) >= _MOST_REASONS:
                return _OTHERWISE
            self._told.add(reason)
            return reason
        return None


@lru_cache(maxsize=4)
def _opened(url: str) -> Transport:
    """The transport, which connects to nothing as long as it is only asked to check."""
    return open_transport(url)


def _messages(staged: pa.RecordBatch) -> Iterator[DelayedMessage]:
    columns = (staged.column(name) for name in ("message_id", "destination", "due_time", "headers", "properties"))
    # the body last: its values are bytes, which are not copied as `values` would
    for message_id, destination, due_time, headers, properties, body in zip(
        *(values(column) for column in columns), staged.column("body").to_pylist(), strict=True
    ):
        yield DelayedMessage(
            message_id=message_id,
            destination=destination,
            due_time=due_time,
            headers=decode_mapping(headers),
            properties=decode_mapping(properties),
            body=body,
        )
