"""Databases under chaos."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from tests.chaos.faults import Fault, killing, pausing
from tests.chaos.topology import Part
from tests.servers import MariaDB, PostgreSQL, PostgreSQLReplication, ShiftedClock, SmallDisk
from tests.servers.postgresql import connect
from tests.servers.postgresql_replication import PostgreSQLNode

POSTGRESQL_SETTINGS = {"fsync": "off", "full_page_writes": "off"}  # a killed process loses nothing it has written
MARIADB_SETTINGS = {"innodb_flush_log_at_trx_commit": "2"}
DATABASE, STANDBY = "database", "standby"
NO_LOG_AHEAD = {"min_wal_size": "32MB", "max_wal_size": "32MB", "wal_recycle": "off"}  # a full disk is felt at once


class OneServer(Part):
    """One PostgreSQL or MariaDB. `left_running`: it was started by somebody else, who ends it."""

    def __init__(self, server: PostgreSQL | MariaDB, *, left_running: bool = False) -> None:
        self._server = server
        self._left_running = left_running

    def start(self) -> None:
        self._server.start()
        self.url = self._server.create_database()

    def close(self) -> None:
        if not self._left_running:
            self._server.close()

    def faults(self) -> Sequence[Fault]:
        return [killing(DATABASE, self._server), pausing(DATABASE, self._server)]


class FullDisk(OneServer):
    """One PostgreSQL on a small disk, which is filled: then it writes no more, or ends."""

    def __init__(self) -> None:
        self._mounted = ExitStack()
        self._disk = self._mounted.enter_context(SmallDisk(megabytes=300))
        super().__init__(PostgreSQL({**POSTGRESQL_SETTINGS, **NO_LOG_AHEAD}, place=self._disk.path))

    def close(self) -> None:
        with self._mounted:
            super().close()

    def faults(self) -> Sequence[Fault]:
        return [*super().faults(), Fault("fill the disk of", DATABASE, self._fill, self._free, 0.5, 10)]

    def _fill(self) -> None:
        self._disk.fill()
        with suppress(psycopg.Error), connect(make_url(self._server.admin_url)) as connection:
            connection.execute("SELECT pg_switch_wal()")  # the next file of the log finds no room

    def _free(self) -> None:
        self._disk.free()
        self._server.start()


class SQLiteFile(Part):
    """One file, no server: claims are leases."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="delaystore-")
        self.url = f"sqlite:///{Path(self._folder.name) / 'delaystore.db'}"

    def start(self) -> None:
        pass  # nothing runs

    def close(self) -> None:
        self._folder.cleanup()

    def faults(self) -> Sequence[Fault]:
        return []


class FailOver(Part):
    """A PostgreSQL primary, a synchronous standby and an asynchronous one; the first is promoted again and again."""

    def __init__(self, clocks: Sequence[ShiftedClock] = ()) -> None:
        self._nodes = PostgreSQLReplication(2, POSTGRESQL_SETTINGS, clocks)
        self._struck: dict[str, PostgreSQLNode] = {}
        """Which node a fault has hit, by its target; faults of two targets may overlap."""

    def start(self) -> None:
        self._nodes.start()
        self._choose_standbys()
        self._database = self._nodes.primary.create_database()
        self.url = self._nodes.url_of_all(self._database)

    def close(self) -> None:
        self._nodes.close()

    def faults(self) -> Sequence[Fault]:
        return [
            Fault("kill", DATABASE, self._kill, self._start),
            Fault("pause", DATABASE, self._pause, partial(self._resume, DATABASE), 0.5, 12),
            Fault("promote", DATABASE, self._promote, self._restore, 1, 4, weight=2),
            Fault("pause", STANDBY, self._pause_standby, partial(self._resume, STANDBY), 0.5, 12, weight=0.5),
        ]

    def _choose_standbys(self) -> None:
        self._nodes.set_synchronous(self._nodes.standbys[:1])

    def _kill(self) -> None:
        self._struck[DATABASE] = self._nodes.primary
        self._nodes.primary.kill()

    def _start(self) -> None:
        self._struck[DATABASE].start()

    def _pause(self) -> None:
        self._pause_node(DATABASE, self._nodes.primary)

    def _pause_standby(self) -> None:
        self._pause_node(STANDBY, self._nodes.standbys[0])

    def _pause_node(self, target: str, node: PostgreSQLNode) -> None:
        self._struck[target] = node
        node.pause()

    def _resume(self, target: str) -> None:
        self._struck[target].resume()

    def _promote(self) -> dict[str, object]:
        standby = self._nodes.standbys[0]
        standby.resume()  # another fault may have paused it
        self._nodes.promote(standby)
        clock = standby.clock
        return {"promotion": True, "offset": clock.offset if clock else 0.0}

    def _restore(self) -> None:
        self._nodes.restore()
        self._choose_standbys()


def clocks_apart(*offsets: float) -> Sequence[ShiftedClock]:
    """Clocks that are ahead of the machine's by these seconds."""
    clocks = [ShiftedClock() for _ in offsets]
    for clock, offset in zip(clocks, offsets, strict=True):
        clock.set(offset)
    return clocks


class AsynchronousFailOver(FailOver):
    """As above, but no commit waits for a standby: a promotion loses what has not reached it."""

    asynchronous = True

    def _choose_standbys(self) -> None:
        self._nodes.set_synchronous([])
