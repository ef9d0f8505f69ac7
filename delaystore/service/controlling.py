"""The control queue as a part of a service."""

from collections.abc import Sequence

from delaystore.control import ControlQueue
from delaystore.service.configuration.tree import ControlConfiguration
from delaystore.service.opened import OpenedEndpoint


class ControlPart:
    """Does what programs that speak AMQP ask for, once the store is set up. Raises ConfigurationError."""

    def __init__(self, opened: OpenedEndpoint, configuration: ControlConfiguration) -> None:
        self._opened = opened
        self._queue = ControlQueue(
            opened.delivery.operations,
            opened.transport,
            queue=configuration.queue,
            with_bodies=configuration.bodies,
            on_rescheduled=opened.wake_up,
        )

    def run(self) -> None:
        """Answer requests until `stop`. Raises StoreError where the tables cannot be set up, or not yet."""
        self._opened.prepare()
        self._queue.run()

    def stop(self) -> None:
        """Have it finish the requests at hand."""
        self._queue.stop(0)

    def problems(self) -> Sequence[str]:
        """Why requests are not done."""
        return self._queue.health().problems
