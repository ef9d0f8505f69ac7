"""By which clock a SQL store goes."""

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, Engine, select
from typing_extensions import override

from delaystore.clock import CarriedClock, Clock, Reading
from delaystore.sql.connections import connections_of
from delaystore.sql.dialects import StoreDialect
from delaystore.sql.engine import Connections
from delaystore.sql.errors import translated_errors

FRESH_FOR: Final = 10.0
"""Seconds for which an answer is carried on."""
_READING: Final = "delaystore_clock"
"""The key in Connection.info, which lives as long as the driver's connection."""


class StoreClock(ABC):
    """The clock of one store, whoever its connections lead to."""

    @abstractmethod
    def now(self) -> datetime:
        """The present instant, asked on a connection of its own if need be: never call it while you have one."""

    def latest_now(self) -> datetime:
        """As `now`, but never behind; by default that is exact."""
        return self.now()

    @abstractmethod
    def now_on(self, connection: Connection) -> datetime:
        """The present instant, asked on `connection` if need be, in its transaction."""

    @abstractmethod
    def now_as_told(self, told: datetime | None) -> datetime:
        """The present instant, where a statement has also asked the database's clock; None: it has none."""


class DatabaseClock(StoreClock):
    """Never ahead of the clock of the server that is asked. SQLite's is this computer's clock.

    After a fail-over another server answers, whose clock may be behind. So an answer is carried on for the connection
    on which it came: what is fetched there is due by the clock of the very server that has it. The answer for calls
    without a connection is asked for anew after a connection was lost or made.
    """

    def __init__(self, engine: Engine, connections: Connections, dialect: StoreDialect) -> None:
        self._connections = connections
        self._clock = dialect.clock()
        self._question = None if self._clock is None else select(self._clock)
        self._shared = CarriedClock(self._ask, FRESH_FOR)
        self._ahead = CarriedClock(self._ask_anew, FRESH_FOR, never_behind=True)
        if self._question is not None:
            connections_of(engine).clocks.update((self._shared, self._ahead))

    @override
    def now(self) -> datetime:
        return self._shared.now() if self._question is not None else datetime.now(UTC)

    @override
    def latest_now(self) -> datetime:
        return self._ahead.now() if self._question is not None else datetime.now(UTC)

    @override
    def now_on(self, connection: Connection) -> datetime:
        if self._question is None:
            return datetime.now(UTC)
        with translated_errors():
            reading: Reading | None = connection.info.get(_READING)
            if reading is None or reading.age > FRESH_FOR:
                reading = Reading.of(connection.execute(self._question).scalar_one())
                connection.info[_READING] = reading
                self._shared.note(reading)
        return reading.now()

    @override
    def now_as_told(self, told: datetime | None) -> datetime:
        return told or datetime.now(UTC)

    def _ask(self) -> datetime:
        with translated_errors(), self._connections.connect() as connection:
            return self.now_on(connection)

    def _ask_anew(self) -> datetime:
        """Not carried on from an earlier answer, which may be behind."""
        assert self._question is not None
        with translated_errors(), self._connections.connect() as connection:
            instant: datetime = connection.execute(self._question).scalar_one()
        return instant


class GivenClock(StoreClock):
    """A test's own clock; the database's is not asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @override
    def now(self) -> datetime:
        return self._clock.now()

    @override
    def now_on(self, connection: Connection) -> datetime:
        return self._clock.now()

    @override
    def now_as_told(self, told: datetime | None) -> datetime:
        return self._clock.now()
