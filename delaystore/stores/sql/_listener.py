"""Wake-ups by LISTEN and NOTIFY, relied upon only while they are proven to arrive."""

import logging
import threading
import time
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Engine, func, select
from typing_extensions import override

from delaystore.calls import Call
from delaystore.stores.abc import WakeUpCallback, WakeUpSubscription

log = logging.getLogger("delaystore.stores")

PING_EVERY: Final = 5.0
"""Seconds between two proofs that notifications arrive."""
PING_TIMEOUT: Final = 2.0
"""Seconds a proof may take."""
PROOF_TIMEOUT: Final = 10.0
"""Seconds that the server may take to deliver a proof."""
RECONNECT_AFTER: Final = 1.0
CLOSE_TIMEOUT: Final = 5.0
"""Seconds to wait for the thread, which a database that hangs may keep for longer."""
_PING: Final = "ping "


class PostgreSqlListener(WakeUpSubscription):
    """A thread with a connection that listens to one channel.

    A connection pooler such as pgbouncer takes a LISTEN and delivers nothing. So the listener notifies itself, through
    another connection, every few seconds, and is `alive` only while that arrives.
    """

    def __init__(self, engine: Engine, channel: str, on_wake_up: WakeUpCallback) -> None:
        self._engine = engine
        self._channel = channel
        self._on_wake_up = on_wake_up
        self._ping = _PING + str(uuid4())
        self._alive = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="delaystore-listener", daemon=True)
        self._thread.start()

    @property
    @override
    def alive(self) -> bool:
        return self._alive

    @override
    def close(self) -> None:
        self._closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen()
            except Exception as error:  # the driver may raise anything; this thread goes on, and dispatchers poll
                if self._alive:
                    log.warning(
                        "lost the wake-up notifications of PostgreSQL; polling until they are back (%s)", _line(error)
                    )
                else:
                    log.debug("no wake-up notifications from PostgreSQL: %s", _line(error))
            self._set_alive(False)
            self._closed.wait(RECONNECT_AFTER)

    def _listen(self) -> None:
        pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        pooled.detach()  # the pool must not hand out a connection that listens
        try:
            connection.autocommit = True
            connection.execute(f'LISTEN "{self._channel}"')
            while not self._closed.is_set():
                self._set_alive(self._prove(connection))
                self._relay(connection, until=time.monotonic() + PING_EVERY)
        finally:
            connection.close()

    def _prove(self, connection: Any) -> bool:
        # also when the server freezes between two proofs, this thread goes on
        with Call("proving that wake-ups arrive", PROOF_TIMEOUT), self._engine.connect() as other:
            other.execute(select(func.pg_notify(self._channel, self._ping)))
            other.commit()
        return self._relay(connection, until=time.monotonic() + PING_TIMEOUT, stop_at_ping=True)

    def _relay(self, connection: Any, *, until: float, stop_at_ping: bool = False) -> bool:
        """Pass notifications on, in slices short enough for `close`; True when the proof arrived."""
        proven = False
        while not (proven and stop_at_ping) and not self._closed.is_set() and (left := until - time.monotonic()) > 0:
            # to its end: psycopg yields all notifications of a packet, and forgets those that are not taken
            for notification in connection.notifies(timeout=min(left, 0.25), stop_after=1):
                if notification.payload == self._ping:
                    proven = True
                elif not notification.payload.startswith(_PING):
                    self._on_wake_up(due_time_of(notification.payload))
        return proven

    def _set_alive(self, alive: bool) -> None:
        changed, self._alive = alive != self._alive, alive
        if changed and not self._closed.is_set():
            self._on_wake_up(None)  # wake-ups may have been missed, and another sleep is due


def payload_of(due_time: datetime | None) -> str:
    """The payload of a NOTIFY: the due time, or nothing where it is not known."""
    return due_time.astimezone(UTC).isoformat() if due_time else ""


def due_time_of(payload: str) -> datetime | None:
    """The inverse of `payload_of`; None also for a text that it did not write."""
    try:
        due_time = datetime.fromisoformat(payload)
    except ValueError:
        return None
    return due_time if due_time.tzinfo else None


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
