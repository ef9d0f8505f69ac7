"""What befalls the connections of an engine, told to those who need to know."""

from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Engine, event

from delaystore.clock import CarriedClock

MAKES_OLD: Final = 1.0
"""Seconds; older readings of a clock are asked for anew after a connection was made, perhaps to another server."""


class EngineConnections:
    """The listeners of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.clocks: Final[WeakSet[CarriedClock]] = WeakSet()
        """Clocks of the server, which must be asked again where another server may answer."""
        event.listen(engine, "connect", self._made)
        event.listen(engine, "invalidate", self._lost)

    def _made(self, *_: Any) -> None:
        for clock in list(self.clocks):
            clock.forget(older_than=MAKES_OLD)

    def _lost(self, *_: Any) -> None:
        for clock in list(self.clocks):
            clock.forget()


_known: Final[WeakKeyDictionary[Engine, EngineConnections]] = WeakKeyDictionary()


def connections_of(engine: Engine) -> EngineConnections:
    """The one EngineConnections of `engine`."""
    known = _known.get(engine)
    if known is None:
        known = _known[engine] = EngineConnections(engine)
    return known
