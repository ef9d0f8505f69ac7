"""What belongs to a control queue in RabbitMQ."""

from dataclasses import dataclass

from delaystore.address import MAX_SHORT_STRING_BYTES
from delaystore.errors import ConfigurationError
from delaystore.names import control_character
from delaystore.transports.rabbitmq.topology.layout import Binding, DestinationKind, Exchange, Layout, Queue


@dataclass(frozen=True, slots=True)
class ControlNames:
    """`queue`: from which requests are read. Raises ConfigurationError for a name that no queue can have."""

    queue: str

    def __post_init__(self) -> None:
        bad = not self.queue.strip() or self.queue.startswith(("/", "amq.")) or control_character(self.queue)
        if bad or len(self.rejected.encode(errors="replace")) > MAX_SHORT_STRING_BYTES:
            raise ConfigurationError(
                f"a control queue cannot be called {self.queue[:80]!r}; give a name of up to "
                f"{MAX_SHORT_STRING_BYTES - len('.rejected')} bytes, such as ENDPOINT.control"
            )

    @property
    def layout(self) -> Layout:
        """What belongs to the control queue, as data."""
        queues = tuple(Queue(name, {"x-queue-type": "quorum"}) for name in (self.queue, self.rejected))
        binding = Binding(self.exchange, self.queue, DestinationKind.QUEUE)
        return Layout(exchanges=(Exchange(self.exchange, "fanout"),), queues=queues, bindings=(binding,))

    @property
    def exchange(self) -> str:
        """A fanout exchange that leads to the queue: who may write to it, and to nothing else, may send requests."""
        return self.queue

    @property
    def rejected(self) -> str:
        """The queue of requests in error, where nobody was told of the error."""
        return f"{self.queue}.rejected"
