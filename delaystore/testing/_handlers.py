"""Functions of a test that receive what is delivered."""

from collections import deque
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any

from delaystore.address import Address, parse_address
from delaystore.errors import ConfigurationError
from delaystore.message import DelayedMessage

Handler = Callable[[DelayedMessage], Any]


class Handlers:
    """One handler for each destination; what none is for is left alone."""

    def __init__(self) -> None:
        self._handlers: dict[Address, Handler] = {}
        self._pending: deque[DelayedMessage] = deque()

    def add(self, destination: str, handler: Handler) -> None:
        """Give `handler` what arrives at `destination` from now on, in place of an earlier handler.

        Raises ConfigurationError for one that would have to be awaited.
        """
        if iscoroutinefunction(handler):
            raise ConfigurationError(f"{handler!r} is asynchronous; give a function that need not be awaited")
        self._handlers[parse_address(destination)] = handler

    def note(self, messages: Iterable[DelayedMessage]) -> None:
        """Keep those of `messages`, which have just arrived, that a handler is for."""
        self._pending.extend(each for each in messages if parse_address(each.destination) in self._handlers)

    def call(self) -> bool:
        """Call the handlers for what was noted, in order; returns whether there was anything.

        Raises what a handler raises; the next call goes on behind that message.
        """
        called = bool(self._pending)
        while self._pending:
            message = self._pending.popleft()
            self._handlers[parse_address(message.destination)](message)
        return called
