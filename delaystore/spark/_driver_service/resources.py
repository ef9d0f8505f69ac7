"""What the driver service holds, and for how long."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sqlalchemy import Table, inspect, text
from sqlalchemy.exc import SQLAlchemyError
from typing_extensions import override

from delaystore.errors import DelaystoreError, LoadLostError
from delaystore.loading.options import StoreOptions
from delaystore.spark._tables import open_table
from delaystore.sql.errors import translated_errors
from delaystore.sql.quoting import execute_as_it_stands, quoted_name
from delaystore.stores.sql.shelves import SENDS_NOTHING

IDLE: Final = 60.0
"""Seconds without a job after which a snapshot is released: between two jobs of one query is less."""
OLDEST: Final = 3600.0
"""Seconds after which a snapshot is released in any case: all rows deleted since then stay in the database's files."""
MOST: Final = 16
"""Snapshots held at once, each with a connection; beyond these, the longest unused are released."""
IDLE_LEASE: Final = 900.0
"""Seconds without a job after which a load counts as given up: far longer than a promotion after the last task."""
_logger: Final = logging.getLogger(__name__)


class Resource(ABC):
    """Something that the driver service holds: a snapshot, or a lease that it renews."""

    @abstractmethod
    def tend(self, *, has_jobs: bool) -> bool:
        """Called about twice a second. `has_jobs`: whether Spark runs a job that is no stream's. False: close it."""

    @abstractmethod
    def close(self) -> None:
        """May be called twice; never raises."""


class Snapshot(Resource):
    """An exported snapshot of a PostgreSQL database, in a transaction of its own that is otherwise idle.

    Connections that read from it are named by `reader_name`, so that its use can be seen. Raises StoreError if the
    snapshot cannot be taken.
    """

    def __init__(self, options: StoreOptions) -> None:
        self._began = self._used = self._busy = time.monotonic()
        self.idle = False
        """Whether no job has run for long: nobody reads from it now, and another snapshot may replace it."""
        source = open_table(options)
        self._connection = source.connect()
        try:
            with translated_errors():
                is_there = inspect(self._connection).has_table(source.table.name, schema=source.table.schema)
                self._connection.rollback()
                self._connection.execute(_BEGIN)
                if is_there:
                    self._keep_shelves(source.table)  # a lock, before any SELECT takes the snapshot
                self._connection.execute(text(SENDS_NOTHING))  # else it keeps loads from their shelves while it is held
                self._connection.execute(_NO_TIMEOUT)
                self.name = str(self._connection.execute(_EXPORT).scalar_one())
                if is_there:
                    self._keep_shelves(source.table)  # those, too, that were attached meanwhile
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Snapshot({self.name!r})"

    def _keep_shelves(self, table: Table) -> None:
        """Let the shelves that are there now stay until the end, though their messages may go."""
        name = quoted_name(table, self._connection.dialect)
        execute_as_it_stands(self._connection, f"LOCK TABLE {name} IN ACCESS SHARE MODE")

    @property
    def unused_for(self) -> float:
        """Seconds since it was seen in use, or was taken."""
        return time.monotonic() - self._used

    @override
    def tend(self, *, has_jobs: bool) -> bool:
        """False once it is idle, old, or lost with its connection."""
        now = time.monotonic()
        if has_jobs:
            self._busy = now
        try:
            if self._in_use():  # asked last, right before a release
                self._busy = self._used = now
        except DelaystoreError as error:
            _logger.info("a snapshot was lost: %s", error)
            return False
        self.idle = now - self._busy >= IDLE
        return not self.idle and now - self._began < OLDEST

    @override
    def close(self) -> None:
        try:
            self._connection.close()
        except SQLAlchemyError as error:
            _logger.debug("a snapshot's connection had gone: %s", type(error).__name__)

    def _in_use(self) -> bool:
        with translated_errors():
            self._connection.execute(_FORGET_STATISTICS)
            return bool(self._connection.execute(_READERS, {"name": reader_name(self.name)}).scalar_one())


class LeaseRenewal(Resource):
    """A lease that is renewed every so many seconds, in a thread of its own: a renewal may hang for minutes.

    `renew`: renews it once; may raise DelaystoreError, of which LoadLostError is the end.
    """

    def __init__(self, name: str, renew: Callable[[], None], every: float) -> None:
        self._name, self._renew, self._every = name, renew, every
        self._busy = time.monotonic()
        self._ended = threading.Event()
        threading.Thread(target=self._keep, name="spark-lease-renewal", daemon=True).start()

    @override
    def tend(self, *, has_jobs: bool) -> bool:
        """False once it is lost, or Spark has been idle for long."""
        now = time.monotonic()
        if has_jobs:
            self._busy = now
        return not self._ended.is_set() and now - self._busy < IDLE_LEASE

    @override
    def close(self) -> None:
        """Renew it no more; it ends by itself."""
        self._ended.set()

    def _keep(self) -> None:
        pause = self._every
        while not self._ended.wait(pause):
            pause = self._every if self._renewed() else self._every / 4

    def _renewed(self) -> bool:
        """Renew it once. False: that failed, and is to be tried again soon."""
        try:
            self._renew()
        except LoadLostError as error:
            _logger.warning("the load %s is lost: %s", self._name, error)
            self._ended.set()
        except DelaystoreError as error:
            _logger.warning("the lease of the load %s could not be renewed, and is tried again: %s", self._name, error)
            return False
        except Exception:
            _logger.exception("renewing the lease of the load %s failed, and is tried again", self._name)
            return False
        return True


def surplus(items: Iterable[tuple[str, Resource]]) -> Sequence[tuple[str, Resource]]:
    """The snapshots that are too many, the longest unused."""
    snapshots = [(name, one) for name, one in items if isinstance(one, Snapshot)]
    return sorted(snapshots, key=lambda item: item[1].unused_for)[MOST:]


def reader_name(snapshot: str) -> str:
    """What a connection that reads from that snapshot calls itself (its application_name)."""
    return f"delaystore read {snapshot}"


_BEGIN: Final = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
_NO_TIMEOUT: Final = text(
    "SELECT set_config(name, '0', true) FROM pg_settings"
    " WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
)
_EXPORT: Final = text("SELECT pg_export_snapshot()")
_FORGET_STATISTICS: Final = text("SELECT pg_stat_clear_snapshot()")
"""Within one transaction PostgreSQL answers from the statistics that it read first."""
_READERS: Final = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
