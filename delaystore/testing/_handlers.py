"""Functions of a test that receive what is delivered."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from delaystore.address import Address, parse_address
from delaystore.message import DelayedMessage

Handler = Callable[[DelayedMessage], Any]
Turn = Callable[[], Any]
"""A call of a handler."""


class Handlers:
    """One handler for each destination; what none is for is left alone."""

    def __init__(self) -> None:
        self._handlers: dict[Address, Handler] = {}
        self._pending: deque[DelayedMessage] = deque()

    def add(self, destination: str, handler: Handler) -> None:
        """Give `handler` what arrives at `destination` from now on, in place of an earlier handler."""
        self._handlers[parse_address(destination)] = handler

    def note(self, messages: Iterable[DelayedMessage]) -> None:
        """Keep those of `messages`, which have just arrived, that a handler is for."""
        self._pending.extend(each for each in messages if parse_address(each.destination) in self._handlers)

    def next(self) -> Turn | None:
        """The next call that is to be made, in the order of what was noted; None: there is none."""
        if not self._pending:
            return None
        message = self._pending.popleft()
        return partial(self._handlers[parse_address(message.destination)], message)
