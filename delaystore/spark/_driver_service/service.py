"""The driver service: a thread of the driver's Python process that holds snapshots and renews leases."""

import atexit
import logging
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, Listener
from typing import Any, Final

from pyspark.sql import SparkSession

from delaystore.errors import DelaystoreError, StoreError
from delaystore.loading.options import StoreOptions
from delaystore.loading.staging import Lease, renew_lease
from delaystore.spark._driver_service.application import SparkApplication
from delaystore.spark._driver_service.client import HOST, DriverClient
from delaystore.spark._driver_service.frames import WrongKeyError, answer
from delaystore.spark._driver_service.resources import LeaseRenewal, Resource, Snapshot, surplus

TICK: Final = 0.5
"""Seconds between two checks of what it holds."""
PATIENCE: Final = 10
"""Seconds for a client to prove who it is, and to say what it wants."""
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
                thread.join(PATIENCE)

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
                _give_up_after(connection, PATIENCE)
                answer(connection, self.client.authkey, self._reply_to)
        except (OSError, EOFError, WrongKeyError):
            _logger.debug("a connection to the driver service ended early")

    def _reply_to(self, request: list[Any]) -> dict[str, Any]:
        method, *arguments = request
        try:
            return {"result": self._calls[method](*arguments)}
        except DelaystoreError as error:
            return {"error": type(error).__name__, "text": str(error)}
        except Exception as error:
            _logger.exception("the driver service failed")
            text = f"the driver service could not {method.replace('_', ' ')}: {type(error).__name__}"
            return {"error": StoreError.__name__, "text": text}

    def _take_snapshot(self, store: Mapping[str, Any]) -> str:
        snapshot = Snapshot(StoreOptions(**store))
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
        self._successors.update((name, None) for name, one in over if isinstance(one, Snapshot) and one.idle)
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
            socket.create_connection((HOST, self.client.port), timeout=PATIENCE).close()
        except OSError:
            _logger.debug("the driver service listens no more")


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
        _logger.exception("the driver service closes a resource that it could not check")
        return True


def _give_up_after(connection: Connection, seconds: int) -> None:
    """Let a read from a client that says nothing fail, so that it occupies a thread for so long only."""
    with socket.socket(fileno=os.dup(connection.fileno())) as its_socket:
        its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


atexit.register(stop_driver_service)
