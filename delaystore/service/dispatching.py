"""The dispatcher as a part of a service."""

from collections.abc import Sequence
from typing import Final

from delaystore.dispatcher import DispatchObserver
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.service.configuration.tree import EndpointConfiguration
from delaystore.service.opened import OpenedEndpoint

LONGEST_QUESTION: Final = 2.0
"""Seconds that the store has to say how it is."""


class DispatcherPart:
    """Forwards what is due, once the store is set up. `observer` None: nobody is told."""

    def __init__(
        self, opened: OpenedEndpoint, configuration: EndpointConfiguration, observer: DispatchObserver | None
    ) -> None:
        self._opened = opened
        self._dispatcher = Dispatcher(
            opened.store,
            opened.transport,
            configuration.settings(),
            opened.name,
            observer=observer,
            name=configuration.dispatcher.name,
        )

    def run(self) -> None:
        """Dispatch until `stop`. Raises StoreError where the tables cannot be set up, or not yet."""
        self._opened.prepare()
        self._opened.dispatched_by(self._dispatcher)
        self._dispatcher.run()

    def stop(self) -> None:
        """Have it finish its pass."""
        self._dispatcher.stop(0)

    def problems(self) -> Sequence[str]:
        """As `delaystore health` judges, and why nothing can be sent."""
        return self._dispatcher.health(LONGEST_QUESTION).problems
