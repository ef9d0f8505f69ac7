"""How Spark's planning workers reach the driver service, which holds objects that must outlive them."""

import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection
from typing import TYPE_CHECKING, Any, Final

from delaystore import errors
from delaystore.bulk.options import StoreOptions
from delaystore.errors import ConfigurationError, DelaystoreError, StoreError

if TYPE_CHECKING:
    from delaystore.bulk.staging import Staging


# What the driver service and its clients say to each other: JSON, in frames that prove the key that both know.
#
# Nothing is unpickled, so no frame can run code. Each side draws a nonce for each call. The service proves the key
# first, since a request holds a store's URL, and another program may have the port of a driver that has ended. Each
# frame's digest covers both nonces and the frame's kind: none can be sent again, or back.

_NONCE: Final = 32
_DIGEST: Final = 32
"""Bytes of SHA-256."""
_LARGEST: Final = 2**20
"""Bytes of a frame; far more than any call needs."""
_GREETING, _REQUEST, _REPLY = b"greeting", b"request.", b"reply..."


class WrongKeyError(Exception):
    """The other side does not know the key."""


def ask(connection: Connection, key: bytes, request: Any) -> Any:
    """The service's reply to `request`. Raises WrongKeyError, and OSError or EOFError for a lost connection."""
    mine = secrets.token_bytes(_NONCE)
    connection.send_bytes(mine)
    greeting = connection.recv_bytes(_NONCE + _DIGEST)
    call = mine + greeting[:_NONCE]
    _check(greeting[_NONCE:], key, _GREETING + call)
    _send(connection, key, _REQUEST + call, request)
    return _received(connection, key, _REPLY + call)


def answer(connection: Connection, key: bytes, reply_to: Callable[[Any], Any]) -> None:
    """Answer one call with the result of `reply_to` for its request. Raises as `ask`."""
    theirs = connection.recv_bytes(_NONCE)
    mine = secrets.token_bytes(_NONCE)
    call = theirs + mine
    connection.send_bytes(mine + _digest(key, _GREETING + call))
    _send(connection, key, _REPLY + call, reply_to(_received(connection, key, _REQUEST + call)))


def _send(connection: Connection, key: bytes, kind: bytes, content: Any) -> None:
    data = json.dumps(content).encode()
    connection.send_bytes(_digest(key, kind + data) + data)


def _received(connection: Connection, key: bytes, kind: bytes) -> Any:
    frame = connection.recv_bytes(_LARGEST)
    data = frame[_DIGEST:]
    _check(frame[:_DIGEST], key, kind + data)
    return json.loads(data)


def _check(digest: bytes, key: bytes, content: bytes) -> None:
    if not hmac.compare_digest(digest, _digest(key, content)):
        raise WrongKeyError


def _digest(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")


# How Spark's planning workers reach the service: a thread of the driver that holds what must outlive them.
#
# Spark plans a read and a write, and commits a write, in Python processes that end right after; none of them could
# keep a database transaction open, or renew a lease while the tasks run. The service itself is in `service`.

HOST: Final = "127.0.0.1"
"""Planning workers run where the driver runs; tasks, which may be elsewhere, need no service."""


@dataclass(frozen=True)
class DriverClient:
    """The driver service's address; picklable. Each call is a connection of its own.

    Every method raises ConfigurationError if the driver service has gone: its session has stopped.
    """

    port: int
    pid: int
    """The driver's process: with it the application ends."""
    authkey: bytes = field(repr=False)

    def take_snapshot(self, options: StoreOptions) -> str:
        """Export a snapshot of a PostgreSQL store, and hold it for the read.

        Returns its name, for SET TRANSACTION SNAPSHOT. Raises StoreError.
        """
        return str(self._call("take_snapshot", _values_of(options)))

    def successor(self, name: str, options: StoreOptions) -> str | None:
        """The snapshot to read from in place of one that was released while Spark was idle; the same for all who ask.

        None: that one was lost in another way, and some tasks may have read from it already. Raises StoreError.
        """
        successor: str | None = self._call("successor", name, _values_of(options))
        return successor

    def parallelism(self) -> int:
        """How many tasks Spark runs at a time, as far as it knows."""
        return int(self._call("parallelism"))

    def makes_table(self) -> bool:
        """Whether Spark is just making a table of the rows that a planning worker is to write, as by `saveAsTable`."""
        return bool(self._call("makes_table"))

    def warn(self, text: str) -> None:
        """Log a warning in the driver, where the user sees it: logs of planning workers are not shown."""
        self._call("warn", text)

    def renew_lease(self, name: str, staging: "Staging", every: float) -> None:
        """Renew its lease at this interval in seconds, until `stop_renewing` of that name, or until Spark is idle
        for long.

        The first renewal is due after `every` seconds. A second call for a name replaces the first.
        """
        lease = staging.lease
        if lease is not None:
            self._call("renew_lease", name, _values_of(lease.store), lease.token, lease.seconds, every)

    def stop_renewing(self, name: str) -> None:
        """Renew that lease no more; nothing happens if none is known by that name."""
        self._call("stop_renewing", name)

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            with Client((HOST, self.port)) as connection:
                reply = ask(connection, self.authkey, [method, *arguments])
        except (OSError, EOFError, WrongKeyError):
            raise ConfigurationError(
                "the Spark session that registered delaystore has stopped; call register(spark) in the new one"
            ) from None
        if "error" in reply:
            raise _error(reply["error"], reply["text"])
        return reply["result"]


def reader_name(snapshot: str) -> str:
    """The application_name of a connection that reads from that snapshot."""
    return f"delaystore read {snapshot}"


def _values_of(options: StoreOptions) -> dict[str, str | None]:
    """The options that name the store, and no others."""
    return {name: getattr(options, name) for name in StoreOptions.__dataclass_fields__}


def _error(kind: str, text: str) -> DelaystoreError:
    found = getattr(errors, kind, StoreError)
    return found(text) if issubclass(found, DelaystoreError) else StoreError(text)
