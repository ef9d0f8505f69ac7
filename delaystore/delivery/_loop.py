"""Where and when the calls of an AsyncDelayedDelivery may be made."""

import asyncio

from delaystore.errors import ConfigurationError
from delaystore.forks import renew_in_children


class OwnLoop:
    """The event loop that a delivery belongs to, that of its first call, and whether the delivery is closed.

    `is_bound`: whether it has connections, which belong to a loop.
    """

    def __init__(self, *, is_bound: bool) -> None:
        self._is_bound = is_bound
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        renew_in_children(self, OwnLoop._leave)

    def open(self) -> None:
        """Allow calls, also once more after `close`; raises as `check`."""
        self._is_closed = False
        self.check()

    def check(self) -> None:
        """Raise ConfigurationError on another loop, and after `close`."""
        running = asyncio.get_running_loop()
        if self._is_bound and self._loop not in (None, running):
            raise ConfigurationError(
                "this AsyncDelayedDelivery belongs to another event loop, that of its first call; make one in each loop"
            )
        if self._is_closed:
            raise ConfigurationError(
                "this AsyncDelayedDelivery is closed; make its calls before close(), or inside `async with`"
            )
        self._loop = running

    def close(self) -> None:
        """Refuse calls from now on."""
        self._is_closed = True

    def _leave(self) -> None:
        """A forked child has connections of its own, and a loop."""
        self._loop = None
