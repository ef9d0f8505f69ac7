"""What befalls the connections of an engine, told to those who need to know."""

import os
import socket
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet, ref

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import ConnectionPoolEntry, Pool, PoolResetState

from delaystore.calls import CUT_AFTER, current_call, in_background
from delaystore.clock import CarriedClock
from delaystore.sql.drivers import Driver, driver_of

MAKES_OLD: Final = 1.0
"""Seconds; older readings of a clock are asked for anew after a connection was made, perhaps to another server."""


class EngineConnections:
    """The listeners of one engine.

    They tell clocks that another server may answer, and calls on which connection they wait. A connection that is
    given back after the engine was disposed of is closed: its pool is gone.
    """

    def __init__(self, engine: Engine) -> None:
        self._driver = driver_of(engine)
        self.clocks: Final[WeakSet[CarriedClock]] = WeakSet()
        """Clocks of the server, which must be asked again where another server may answer."""
        self._pool = ref(engine.pool)
        event.listen(engine, "engine_disposed", self._disposed)
        event.listen(engine, "connect", self._made, insert=True)  # before the connection is prepared
        event.listen(engine, "invalidate", self._lost)
        event.listen(engine, "checkout", self._used, insert=True)  # before the connection is tested
        event.listen(engine, "reset", self._given_back)
        event.listen(engine, "checkin", self._returned)
        for moment in ("before_cursor_execute", "commit", "rollback"):
            event.listen(engine, moment, self._used_by)

    def _disposed(self, engine: Engine) -> None:
        former, self._pool = self._pool(), ref(engine.pool)
        if former is not None:
            _close_when_given_back(former)

    def _made(self, driver: Any, _record: ConnectionPoolEntry) -> None:
        self._driver.mend(driver)
        self._used(driver)
        for clock in list(self.clocks):
            clock.forget(older_than=MAKES_OLD)

    def _lost(self, *_: Any) -> None:
        for clock in list(self.clocks):
            clock.forget()

    def _used(self, driver: Any, *_: Any) -> None:
        call = current_call()
        if call is None or call.limit is None:
            return
        former = call.waits_for
        if isinstance(former, WaitingConnection) and former.connection is driver:
            return
        descriptor = self._driver.socket_of(driver)
        if descriptor is None:
            return
        try:
            duplicate = os.dup(descriptor)
        except OSError:  # too many open files: better a call without an end than none
            return
        call.wait_for(WaitingConnection(driver, duplicate, self._driver))

    def _used_by(self, connection: Connection, *_: Any) -> None:
        if current_call() is not None and not connection.invalidated:
            self._used(connection.connection.dbapi_connection)

    def _given_back(self, driver: Any, record: Any, state: PoolResetState) -> None:
        """Give the connection the isolation level back that it had.

        SQLAlchemy does so later, where the cancellation of a task, for it is awaited on a loop, would lose the place
        in the pool. From here the connection is closed then.
        """
        self._used(driver)
        if not self._driver.is_async or not state.asyncio_safe or record is None or not record.finalize_callback:
            return
        if not state.transaction_was_reset:
            driver.rollback()
        while record.finalize_callback:
            record.finalize_callback.pop()(driver)

    def _returned(self, driver: Any, record: ConnectionPoolEntry) -> None:
        """From now on the call ends nothing on the connection, which another thread may take.

        Nobody gets the connection of a call that was to be ended: a late cancellation would hit the next one. Nor of
        one that took longer than it may: whoever asked has perhaps closed the store by now, and nobody would close it.
        """
        call = current_call()
        if call is not None and isinstance(call.waits_for, WaitingConnection) and call.waits_for.connection is driver:
            call.wait_for(None)
        if call is not None and (call.overdue or call.seconds_left == 0):
            _end(driver, record)


def dispose(engine: Engine) -> None:
    """Close the engine's connections: idle ones now, those in use as soon as they are given back.

    SQLite's engines have no other listener for this: any event of an Engine slows each send down by a quarter.
    """
    former = engine.pool
    engine.dispose()
    _close_when_given_back(former)
    former.dispose()  # those that were given back meanwhile


def _close_when_given_back(pool: Pool) -> None:
    """SQLAlchemy leaves them to the garbage collector. Their users include threads that connect at this moment."""
    event.listen(pool, "checkin", _end)


def _end(_driver: Any, record: ConnectionPoolEntry) -> None:
    record.invalidate()


class WaitingConnection:
    """A driver's connection that a call waits for.

    `descriptor`: a duplicate of its socket's, so that it stays what it is even if the driver closes its own.
    """

    def __init__(self, connection: Any, descriptor: int, driver: Driver) -> None:
        self.connection = connection
        self._descriptor = descriptor
        self._driver = driver

    def ask(self) -> None:
        """Where the server can be asked to end what it does for this connection, ask it; else end the wait."""
        cancel: Callable[[float], object] | None = self._driver.cancellation(self.connection)
        if cancel is None:
            self.cut()
        else:
            in_background("delaystore-cancel", lambda: cancel(CUT_AFTER))

    def cut(self) -> None:
        """Shut the socket down: the driver sees the end of the connection."""
        try:
            with socket.socket(fileno=os.dup(self._descriptor)) as duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has just ended
            return

    def release(self) -> None:
        """Close the duplicate."""
        os.close(self._descriptor)


_known: Final[WeakKeyDictionary[Engine, EngineConnections]] = WeakKeyDictionary()


def connections_of(engine: Engine) -> EngineConnections:
    """The one EngineConnections of `engine`."""
    known = _known.get(engine)
    if known is None:
        known = _known[engine] = EngineConnections(engine)
    return known
