"""The driver service: a thread of the driver's Python process that holds snapshots and renews leases."""

import atexit
import logging
import os
import secrets
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, Listener
from typing import Any, Final
from weakref import WeakSet

from pyspark import SparkContext
from pyspark.sql import SparkSession
from sqlalchemy import Table, inspect, text
from sqlalchemy.exc import SQLAlchemyError
from typing_extensions import override

from delaystore.bulk.options import StoreOptions
from delaystore.bulk.spark._driver_client import HOST, DriverClient, WrongKeyError, answer, reader_name
from delaystore.bulk.spark._source import DelaystoreDataSource
from delaystore.bulk.spark._tables import open_table
from delaystore.bulk.spark.requirements import settle_worker_python
from delaystore.bulk.staging import Lease, renew_lease
from delaystore.errors import DelaystoreError, LoadLostError, StoreError
from delaystore.stores.sql.bulk_partitions import SENDS_NOTHING
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.faults import execute_as_it_stands, quoted_name

# What the driver service asks of Spark.

_WRITER: Final = "PythonBatchWrite.createBatchWriterFactory"
"""What Spark calls when it asks a planning worker for a writer (seen with Spark 4.3)."""
_TABLE: Final = "TableAsSelect"
"""In names of classes: of CREATE (or REPLACE) TABLE ... AS SELECT, which `saveAsTable` is as well."""


class SparkApplication:
    """The application of a SparkContext, as the driver service sees it."""

    def __init__(self, context: SparkContext) -> None:
        self.context = context
        self._sessions: WeakSet[SparkSession] = WeakSet()
        self.add: Final = self._sessions.add
        """Leave out the jobs of this session's streams as well."""

    def is_over(self) -> bool:
        """Whether it has stopped, for good; asks nothing of the JVM, which may have gone."""
        return getattr(self.context, "_jsc", None) is None

    def has_jobs(self) -> bool:
        """Whether a job is running that is no stream's: stream jobs run forever. False once the JVM has gone."""
        try:
            tracker = self.context.statusTracker()
            jobs = set(tracker.getActiveJobsIds())
            for run in self._runs_of_streams() if jobs else ():
                jobs.difference_update(tracker.getJobIdsForGroup(run))
            return bool(jobs)
        except Exception:  # whatever Py4J makes of a JVM that is going: its own errors, OSError, AttributeError
            return False

    def parallelism(self) -> int:
        """How many tasks run at a time: Spark's default, which counts the cores it has."""
        return int(self.context.defaultParallelism)

    def makes_table(self) -> bool:
        """Whether a thread of Spark's that waits for a planning worker's writer is making a table of its rows.

        Spark does not report that to a writer; the thread's stack shows it. False also if it shows none.
        """
        try:
            jvm: Any = self.context._jvm
            threads = [thread.toString() for thread in jvm.org.apache.spark.util.Utils.getThreadDump()]
        except Exception:  # as above
            return False
        return any(_WRITER in thread and _TABLE in thread for thread in threads)

    def _runs_of_streams(self) -> Iterable[str]:
        """Spark runs a stream's jobs in a group named after the run."""
        return [query.runId for session in list(self._sessions) for query in session.streams.active]


# What the driver service holds, and for how long.

IDLE: Final = 60.0
"""Seconds without a job after which a snapshot is released: between two jobs of one query is less."""
OLDEST: Final = 3600.0
"""Seconds after which a snapshot is released in any case: all rows deleted since then stay in the database's files."""
MOST: Final = 16
"""Snapshots held at once, each with a connection; beyond these, the longest unused are released."""
IDLE_LEASE: Final = 900.0
"""Seconds without a job after which a load counts as given up: far longer than a promotion after the last task."""


class Resource(ABC):
    """Something that the driver service holds: a snapshot, or a lease that it renews."""

    @abstractmethod
    def tend(self, *, has_jobs: bool) -> bool:
        """Called about twice a second. `has_jobs`: whether Spark runs a job that is no stream's. False: close it."""

    @abstractmethod
    def close(self) -> None:
        """May be called twice; never raises."""


class ExportedSnapshot(Resource):
    """An exported snapshot of a PostgreSQL database, in a transaction of its own that is otherwise idle.

    Connections that read from it are named by `reader_name`, so that its use can be seen. Raises StoreError if the
    snapshot cannot be taken.
    """

    def __init__(self, options: StoreOptions) -> None:
        self._began = self._used = self._busy = time.monotonic()
        self.idle = False
        """Whether no job has run for long: no task reads from it now, and another snapshot may replace it."""
        source = open_table(options)
        self._connection = source.connect()
        try:
            with translated_errors():
                is_there = inspect(self._connection).has_table(source.table.name, schema=source.table.schema)
                self._connection.rollback()
                self._connection.execute(_BEGIN)
                if is_there:
                    self._keep_partitions(source.table)  # a lock, before any SELECT takes the snapshot
                # else the transaction keeps loads from bulk partitions while the snapshot is held
                self._connection.execute(text(SENDS_NOTHING))
                self._connection.execute(_NO_TIMEOUT)
                self.name = str(self._connection.execute(_EXPORT).scalar_one())
                if is_there:
                    self._keep_partitions(source.table)  # those, too, that were attached meanwhile
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Snapshot({self.name!r})"

    def _keep_partitions(self, table: Table) -> None:
        """Let the bulk partitions that are there now stay until the end, though their messages may go."""
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
            _logger.info("lost the snapshot of a Spark read: %s; its next task fails", error)
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
    """A lease that is renewed at an interval in seconds, in a thread of its own: a renewal may hang for minutes.

    `renew`: renews it once; may raise DelaystoreError; LoadLostError is the end.
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
        """Renew it no more; it ends on its own."""
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
            _logger.warning("cannot renew the lease of the load %s, will retry: %s", self._name, error)
            return False
        except Exception:
            _logger.exception("internal error while renewing the lease of the load %s; will retry", self._name)
            return False
        return True


def surplus(items: Iterable[tuple[str, Resource]]) -> Sequence[tuple[str, Resource]]:
    """The snapshots that are too many, the longest unused."""
    snapshots = [(name, one) for name, one in items if isinstance(one, ExportedSnapshot)]
    return sorted(snapshots, key=lambda item: item[1].unused_for)[MOST:]


_BEGIN: Final = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
_NO_TIMEOUT: Final = text(
    "SELECT set_config(name, '0', true) FROM pg_settings"
    " WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
)
_EXPORT: Final = text("SELECT pg_export_snapshot()")
_FORGET_STATISTICS: Final = text("SELECT pg_stat_clear_snapshot()")
"""Within one transaction PostgreSQL answers from the statistics that it read first."""
_READERS: Final = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")

# The driver service: a thread of the driver's Python process that holds snapshots and renews leases.

TICK: Final = 0.5
"""Seconds between two checks of its objects."""
TIMEOUT: Final = 10
"""Seconds for a client to authenticate, and to send its request."""
_logger: Final = logging.getLogger(__name__)


class DriverService:
    """Serves one application until that is over; `stop` ends it sooner. Workers reach it by `client`."""

    def __init__(self, application: SparkApplication) -> None:
        self._application = application
        self._resources: dict[str, Resource] = {}
        self._successors: dict[str, str | None] = {}
        """By the name of a snapshot released because Spark was idle: the one that replaces it; None: not taken yet."""
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._stopping = threading.Event()
        self._listener = Listener((HOST, 0))
        port = int(self._listener.address[1])
        self.client = DriverClient(port, os.getpid(), secrets.token_bytes(32))
        self._calls: Mapping[str, Callable[..., Any]] = {
            "take_snapshot": self._take_snapshot,
            "successor": self._successor,
            "parallelism": application.parallelism,
            "makes_table": application.makes_table,
            "warn": _logger.warning,
            "renew_lease": self._renew_lease,
            "stop_renewing": self._stop_renewing,
        }
        # Named after Spark: they end with its application. Threads named delaystore-... end with an object of ours.
        self._threads = [
            threading.Thread(target=self._serve, name="spark-driver-service", daemon=True),
            threading.Thread(target=self._watch, name="spark-driver-service-watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether it serves; False after `stop`, after the application's end, and in a forked child."""
        return not self._stopping.is_set() and all(thread.is_alive() for thread in self._threads)

    def serves(self, application: SparkApplication) -> bool:
        """Whether it is alive, and `application` is its own."""
        return self.alive and self._application is application

    def stop(self) -> None:
        """Close everything it holds; may be called twice."""
        self._stopping.set()
        self._wake_listener()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(TIMEOUT)

    def _serve(self) -> None:
        with self._listener:
            while not self._stopping.is_set():
                try:
                    connection = self._listener.accept()
                except OSError:
                    continue  # a client that went while it was being accepted
                if self._stopping.is_set():
                    connection.close()  # what would be held for it is let go just now
                    return
                threading.Thread(
                    target=self._answer, args=(connection,), name="spark-driver-service-call", daemon=True
                ).start()

    def _answer(self, connection: Connection) -> None:
        try:
            with connection:
                _give_up_after(connection, TIMEOUT)
                answer(connection, self.client.authkey, self._reply_to)
        except (OSError, EOFError, WrongKeyError):
            _logger.debug("a client of the driver service disconnected early")

    def _reply_to(self, request: list[Any]) -> dict[str, Any]:
        method, *arguments = request
        try:
            return {"result": self._calls[method](*arguments)}
        except DelaystoreError as error:
            return {"error": type(error).__name__, "text": str(error)}
        except Exception as error:
            _logger.exception("internal error in the driver service; its caller gets an error")
            text = f"the driver service could not {method.replace('_', ' ')}: {type(error).__name__}"
            return {"error": StoreError.__name__, "text": text}

    def _take_snapshot(self, store: Mapping[str, Any]) -> str:
        snapshot = ExportedSnapshot(StoreOptions(**store))
        self._add(snapshot.name, snapshot)
        return snapshot.name

    def _successor(self, name: str, store: Mapping[str, Any]) -> str | None:
        with self._taking:
            while name in self._successors:
                successor = self._successors[name]
                if successor is None:
                    successor = self._successors[name] = self._take_snapshot(store)
                    return successor
                name = successor
            return name if name in self._resources else None

    def _renew_lease(self, name: str, store: Mapping[str, Any], token: str, seconds: float, every: float) -> None:
        lease = Lease(StoreOptions(**store), token, seconds)
        self._add(f"lease {name}", LeaseRenewal(name, partial(renew_lease, lease), every))

    def _stop_renewing(self, name: str) -> None:
        with self._lock:
            renewal = self._resources.pop(f"lease {name}", None)
        if renewal is not None:
            renewal.close()

    def _add(self, name: str, resource: Resource) -> None:
        """Hold `resource`, in place of the one of that name. After `stop`, it is closed at once."""
        other: Resource | None = resource
        with self._lock:
            if not self._stopping.is_set():
                other = self._resources.get(name)
                self._resources[name] = resource
        if other is not None:
            other.close()

    def _watch(self) -> None:
        while not self._stopping.wait(TICK) and not self._application.is_over():
            self._tend()
        self._stopping.set()
        self._wake_listener()
        self._release(self._all())

    def _all(self) -> list[tuple[str, Resource]]:
        with self._lock:
            return list(self._resources.items())

    def _tend(self) -> None:
        resources = self._all()
        if not resources:
            return
        has_jobs = self._application.has_jobs()
        over = [(name, one) for name, one in resources if _is_over(one, has_jobs=has_jobs)]
        self._successors.update((name, None) for name, one in over if isinstance(one, ExportedSnapshot) and one.idle)
        self._release(over)
        self._release(surplus(item for item in resources if item not in over))

    def _release(self, items: Sequence[tuple[str, Resource]]) -> None:
        for name, resource in items:
            with self._lock:
                if self._resources.get(name) is resource:
                    del self._resources[name]
            resource.close()

    def _wake_listener(self) -> None:
        try:
            socket.create_connection((HOST, self.client.port), timeout=TIMEOUT).close()
        except OSError:
            _logger.debug("the driver service stopped listening")


_service: DriverService | None = None
_application: SparkApplication | None = None
_guard: Final = threading.Lock()


def driver_service_of(session: SparkSession) -> DriverService:
    """The driver service of a session's application, started if need be; a process has one application at a time."""
    global _service, _application
    with _guard:
        if _application is None or _application.context is not session.sparkContext:
            _application = SparkApplication(session.sparkContext)
        _application.add(session)
        if _service is None or not _service.serves(_application):
            _service = DriverService(_application)
        return _service


def stop_driver_service() -> None:
    """Stop this process's driver service, if there is one, without waiting for the application's end."""
    with _guard:
        if _service is not None:
            _service.stop()


def _is_over(resource: Resource, *, has_jobs: bool) -> bool:
    """Whether to close `resource`. True also if tending it fails, so that the others are tended."""
    try:
        return not resource.tend(has_jobs=has_jobs)
    except Exception:
        _logger.exception("cannot check a resource of the driver service; closing it")
        return True


def _give_up_after(connection: Connection, seconds: int) -> None:
    """Let a read from a client that says nothing fail, so that it occupies a thread for so long only."""
    with socket.socket(fileno=os.dup(connection.fileno())) as its_socket:
        its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


atexit.register(stop_driver_service)

# Making the data source known to a Spark session.

FILTERS = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses readers that take filters (the option pushFilters)."""


def register(spark: SparkSession) -> None:
    """Make the format "delaystore" known to a session; may be called again, in each of several sessions, and threads.

    It sets spark.sql.python.filterPushdown.enabled, and starts the driver service: a thread in this process that serves
    all sessions of the Spark application until that stops. It listens on 127.0.0.1, holds the snapshots that reads in
    several partitions share, and renews the leases of loads that are running.

    Workers run PYSPARK_PYTHON; without that, spark.pyspark.python, or with a local master this Python.

    A session of Spark Connect has its driver in another process: it has no driver service, and reads in one partition.

    Args:
        spark: The session.

    Raises:
        ConfigurationError: The workers' Python cannot run delaystore.

    """
    if _is_classic(spark):
        settle_worker_python(spark.sparkContext)
    client = driver_client(spark)

    class Registered(DelaystoreDataSource):
        """Carries the driver service's address to Spark's workers: a class made here is pickled with its values."""

        driver = client

    spark.conf.set(FILTERS, "true")
    _activate(spark)
    spark.dataSource.register(Registered)


def driver_client(spark: SparkSession) -> DriverClient | None:
    """Where to reach the driver service of this session's application, started if need be; None for Spark Connect."""
    return driver_service_of(spark).client if _is_classic(spark) else None


def _activate(spark: SparkSession) -> None:
    """Let this thread find the format: Spark looks in its active session, which a new thread or session is not."""
    if _is_classic(spark) and spark._jvm is not None:
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


def _is_classic(spark: SparkSession) -> bool:
    return isinstance(spark, SparkSession) and hasattr(spark, "_jsparkSession")
