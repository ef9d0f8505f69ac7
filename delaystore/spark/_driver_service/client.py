"""How Spark's planning workers reach the service: a thread of the driver that holds what must outlive them.

Spark plans a read and a write, and commits a write, in Python processes that end right after; none of them could keep
a database transaction open, or renew a lease while the tasks run. The service itself is in `service`.
"""

from dataclasses import dataclass, field
from multiprocessing.connection import Client
from typing import TYPE_CHECKING, Any, Final

from delaystore import errors
from delaystore.errors import ConfigurationError, DelaystoreError, StoreError
from delaystore.loading.options import StoreOptions
from delaystore.spark._driver_service.frames import WrongKeyError, ask

if TYPE_CHECKING:
    from delaystore.loading.staging import Staging

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
        """Whether Spark is just making a table of what a planning worker is to write, as by `saveAsTable`."""
        return bool(self._call("makes_table"))

    def warn(self, text: str) -> None:
        """Log a warning in the driver, where the user sees it: nobody looks at what a planning worker logs."""
        self._call("warn", text)

    def renew_lease(self, name: str, staging: "Staging", every: float) -> None:
        """Renew its lease every so many seconds, until `stop_renewing` of that name, or until Spark is idle for long.

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


def _values_of(options: StoreOptions) -> dict[str, str | None]:
    """What names the store, and nothing else of the options."""
    return {name: getattr(options, name) for name in StoreOptions.__dataclass_fields__}


def _error(kind: str, text: str) -> DelaystoreError:
    found = getattr(errors, kind, StoreError)
    return found(text) if issubclass(found, DelaystoreError) else StoreError(text)
