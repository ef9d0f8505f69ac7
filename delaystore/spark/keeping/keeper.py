"""The keeper: a thread of the driver's Python process that holds snapshots and renews leases."""

import atexit
import logging
import os
import secrets
import socket
import struct
import threading
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Any, Final

from pyspark.sql import SparkSession

from delaystore.errors import DelaystoreError, StoreError
from delaystore.spark.keeping.application import Application, SparkApplication
from delaystore.spark.keeping.client import HOST, Call, KeeperClient, Renewable
from delaystore.spark.keeping.held import Held, HeldLease, HeldSnapshot, surplus
from delaystore.spark.options import StoreOptions

TICK: Final = 0.5
"""Seconds between two looks at what is held."""
PATIENCE: Final = 10
"""Seconds for a client to prove who it is, and to say what it wants."""
_logger: Final = logging.getLogger(__name__)


class Keeper:
    """Serves one application until that is over; `stop` ends it sooner. `client` is what workers reach it by."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._held: dict[str, Held] = {}
        self._successors: dict[str, str | None] = {}
        """Snapshots released because Spark was idle, and what was taken since for those who ask again."""
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._stopping = threading.Event()
        self._listener = Listener((HOST, 0))
        port = int(self._listener.address[1])
        self.client = KeeperClient(port, os.getpid(), secrets.token_bytes(32))
        self._calls: Mapping[str, Call] = {
            "hold_snapshot": self._hold_snapshot,
            "successor": self._successor,
            "parallelism": application.parallelism,
            "renew": self._renew,
            "let_go": self._let_go,
        }
        # Named after Spark, with whose application they end; what begins with delaystore- ends with an object of ours.
        self._threads = [
            threading.Thread(target=self._serve, name="spark-keeper", daemon=True),
            threading.Thread(target=self._watch, name="spark-keeper-watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether it serves; False after `stop`, after the application's end, and in a forked child."""
        return not self._stopping.is_set() and all(thread.is_alive() for thread in self._threads)

    def serves(self, application: Application) -> bool:
        """Whether it is alive, and `application` is its own."""
        return self.alive and self._application is application

    def stop(self) -> None:
        """Let go of everything; may be called twice."""
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
                threading.Thread(target=self._answer, args=(connection,), name="spark-keeper-call", daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        try:
            with connection:
                _give_up_after(connection, PATIENCE)
                deliver_challenge(connection, self.client.authkey)
                answer_challenge(connection, self.client.authkey)
                method, arguments = connection.recv()
                connection.send(self._done(method, arguments))
        except (OSError, EOFError, AuthenticationError):
            _logger.debug("a connection to the keeper ended early")

    def _done(self, method: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
        try:
            return False, self._calls[method](*arguments)
        except DelaystoreError as error:
            return True, error
        except Exception as error:
            _logger.exception("the keeper failed")
            return True, StoreError(f"the keeper could not {method.replace('_', ' ')}: {type(error).__name__}")

    def _hold_snapshot(self, options: StoreOptions) -> str:
        held = HeldSnapshot(options)
        self._hold(held.name, held)
        return held.name

    def _successor(self, name: str, options: StoreOptions) -> str | None:
        with self._taking:
            while name in self._successors:
                successor = self._successors[name]
                if successor is None:
                    successor = self._successors[name] = self._hold_snapshot(options)
                    return successor
                name = successor
            return name if name in self._held else None

    def _renew(self, name: str, lease: Renewable, every: float) -> None:
        self._hold(f"lease {name}", HeldLease(name, lease, every))

    def _let_go(self, name: str) -> None:
        with self._lock:
            held = self._held.pop(f"lease {name}", None)
        if held is not None:
            held.close()

    def _hold(self, name: str, held: Held) -> None:
        """In place of what is held by that name; not at all if it has stopped."""
        other: Held | None = held
        with self._lock:
            if not self._stopping.is_set():
                other = self._held.get(name)
                self._held[name] = held
        if other is not None:
            other.close()

    def _watch(self) -> None:
        while not self._stopping.wait(TICK) and not self._application.is_over():
            self._tend()
        self._stopping.set()
        self._wake_listener()
        self._release(self._all())

    def _all(self) -> list[tuple[str, Held]]:
        with self._lock:
            return list(self._held.items())

    def _tend(self) -> None:
        held = self._all()
        if not held:
            return
        has_jobs = self._application.has_jobs()
        over = [(name, one) for name, one in held if _is_over(one, has_jobs=has_jobs)]
        self._successors.update((name, None) for name, one in over if isinstance(one, HeldSnapshot) and one.idle)
        self._release(over)
        self._release(surplus([item for item in held if item not in over]))

    def _release(self, items: list[tuple[str, Held]]) -> None:
        for name, held in items:
            with self._lock:
                if self._held.get(name) is held:
                    del self._held[name]
            held.close()

    def _wake_listener(self) -> None:
        try:
            socket.create_connection((HOST, self.client.port), timeout=PATIENCE).close()
        except OSError:
            _logger.debug("the keeper listens no more")


_keeper: Keeper | None = None
_application: SparkApplication | None = None
_guard: Final = threading.Lock()


def keeper_of(session: SparkSession) -> Keeper:
    """The one keeper of a session's application, started if need be; a process has one application at a time."""
    global _keeper, _application
    with _guard:
        if _application is None or _application.context is not session.sparkContext:
            _application = SparkApplication(session.sparkContext)
        _application.add(session)
        if _keeper is None or not _keeper.serves(_application):
            _keeper = Keeper(_application)
        return _keeper


def stop_keeper() -> None:
    """Stop this process's keeper, if there is one, without waiting for the application's end."""
    with _guard:
        if _keeper is not None:
            _keeper.stop()


def _is_over(held: Held, *, has_jobs: bool) -> bool:
    """Whatever fails in one thing, the others are looked after."""
    try:
        return not held.tend(has_jobs=has_jobs)
    except Exception:
        _logger.exception("the keeper lets go of something that it could not look after")
        return True


def _give_up_after(connection: Connection, seconds: int) -> None:
    """Let a read from a client that says nothing fail, so that it occupies a thread for so long only."""
    with socket.socket(fileno=os.dup(connection.fileno())) as its_socket:
        its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


atexit.register(stop_keeper)
