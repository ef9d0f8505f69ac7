"""A private PostgreSQL primary with standbys."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from tests.servers.errors import ServerFailedError
from tests.servers.postgresql import NOTHING, PostgreSQL, PostgreSQLDatabases, connect
from tests.servers.server import START_SECONDS
from tests.servers.shifted_clock import ShiftedClock

_SETTINGS = {
    "max_connections": "100",
    "wal_keep_size": "1GB",  # in place of slots, which a promoted standby would not have
    "wal_receiver_timeout": "5s",
    "wal_retrieve_retry_interval": "200ms",
}


CHECKER: Final = "checker"
"""A role without a password, by which proxies ask who is the primary."""


class PostgreSQLNode(PostgreSQL):
    """One server of several: `name` is what the others know it by. `source`: whom it copies at its first start."""

    def __init__(
        self,
        name: str,
        settings: Mapping[str, str],
        source: "PostgreSQLNode | None" = None,
        clock: ShiftedClock | None = None,
    ) -> None:
        super().__init__({**_SETTINGS, **settings, "cluster_name": name}, clock)
        self.name = name
        self._source = source
        if source is not None:
            urls = [make_url(url).set(port=self.port) for url in (source.url, source.admin_url)]
            PostgreSQLDatabases.__init__(self, *(url.render_as_string(hide_password=False) for url in urls))

    @property
    def standby(self) -> bool:
        """Whether it takes reads alone. Raises psycopg.OperationalError if it does not answer."""
        return bool(self.query("SELECT pg_is_in_recovery()"))

    def query(self, statement: str) -> object:
        """The first column of the first row. Raises psycopg.OperationalError."""
        with connect(self._admin_url) as connection:
            row = connection.execute(statement.encode()).fetchone()
            return row[0] if row else None

    def set(self, name: str, value: str) -> None:
        """Change a server parameter that needs no restart; it takes effect before long."""
        change = sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
        with connect(self._admin_url) as connection:
            connection.execute(change)
            connection.execute("SELECT pg_reload_conf()")

    def copy(self, source: "PostgreSQLNode") -> None:
        """Forget all it has, and become a standby of `source`, which must run."""
        self.kill()  # a clean stop waits for whoever receives from it
        shutil.rmtree(self._data, ignore_errors=True)
        self._source = source
        self._prepare()
        self.start()

    def follow(self, source: "PostgreSQLNode | None") -> None:
        """Receive from `source` from now on; None: from nobody, until it is told otherwise."""
        self.set("primary_conninfo", "" if source is None else source.conninfo)

    @property
    def conninfo(self) -> str:
        """How a standby reaches it."""
        admin = self._admin_url
        return f"host=127.0.0.1 port={self.port} user={admin.username} password={admin.password}"

    def _prepare(self) -> None:
        if self._source is None:
            super()._prepare()
            access = self._data / "pg_hba.conf"
            access.write_text(f"host postgres {CHECKER} 127.0.0.1/32 trust\n{access.read_text()}")
        else:
            options = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
            program = self._program("pg_basebackup")
            self._run([program, "--dbname", self._source.conninfo, "--pgdata", str(self._data), *options])


class PostgreSQLReplication:
    """A primary and its standbys; each of `nodes` can be killed, paused, stopped and started. A context manager.

    `primary` changes with promote(). The first of `standbys` is synchronous: a commit waits for it.
    `settings`: of each server. `clocks`: of the servers, in turn; none: all have the machine's.
    """

    def __init__(
        self, standbys: int = 2, settings: Mapping[str, str] = NOTHING, clocks: Sequence[ShiftedClock] = ()
    ) -> None:
        clock_of = dict(enumerate(clocks))
        self.primary = PostgreSQLNode("node0", settings, clock=clock_of.get(0))
        others = (PostgreSQLNode(f"node{n}", settings, self.primary, clock_of.get(n)) for n in range(1, standbys + 1))
        self.nodes: Sequence[PostgreSQLNode] = (self.primary, *others)
        self._retired: list[PostgreSQLNode] = []
        """Those that have what the primary has not, such as a former primary: to be rebuilt."""

    def __enter__(self) -> Self:
        self.start()
        self.set_synchronous(self.standbys[:1])
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def standbys(self) -> Sequence[PostgreSQLNode]:
        """All but the primary and those to be rebuilt."""
        return [node for node in self.nodes if node is not self.primary and node not in self._retired]

    def url_of_all(self, database_url: str, *, first: PostgreSQLNode | None = None) -> str:
        """One URL that names all nodes: `postgresql+psycopg://user:password@host:port,host:port/database`.

        `first`: the one named first; None: as in `nodes`.
        """
        own = make_url(database_url)
        nodes = sorted(self.nodes, key=lambda node: node is not first)
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        return f"{own.drivername}://{own.username}:{own.password}@{hosts}/{own.database}"

    def set_synchronous(self, standbys: Sequence[PostgreSQLNode]) -> None:
        """Let commits wait for the first of these that is connected, however long none is; none: for nobody."""
        names = ", ".join(node.name for node in standbys)
        wanted = f"FIRST 1 ({names})" if names else ""
        self.primary.set("synchronous_standby_names", wanted)
        _await(lambda: self.primary.query("SHOW synchronous_standby_names") == wanted, "it is known who is synchronous")

    def promote(self, standby: PostgreSQLNode) -> None:
        """Make a standby the primary; the old one is killed first. The others follow it; nobody is waited for."""
        self.primary.kill()
        others = [node for node in self.standbys if node is not standby]
        followers = [node for node in others if _has_no_more(node, standby)]
        self._retired += [self.primary, *(node for node in others if node not in followers)]
        standby.set("synchronous_standby_names", "")
        standby.query("SELECT pg_promote(true, 60)")
        self.primary = standby
        for node in followers:
            node.follow(standby)

    def rebuild(self, node: PostgreSQLNode) -> None:
        """Make a node anew as a standby of the primary, whatever it was."""
        node.copy(self.primary)
        if node in self._retired:
            self._retired.remove(node)
        self.await_streaming(node)

    def await_streaming(self, standby: PostgreSQLNode) -> None:
        """Wait until it has applied all that the primary has written up to now."""
        here = self.primary.query("SELECT pg_current_wal_lsn()")
        there = f"replay_lsn >= '{here}' AND state = 'streaming' AND application_name = '{standby.name}'"
        question = f"SELECT 1 FROM pg_stat_replication WHERE {there}"
        _await(lambda: self.primary.query(question), f"{standby.name} follows")

    def start(self) -> None:
        """Start the nodes that do not run, but those that were primaries once."""
        self.primary.start()
        if not self.primary.query(f"SELECT 1 FROM pg_roles WHERE rolname = '{CHECKER}'"):
            with connect(make_url(self.primary.admin_url)) as connection:
                connection.execute(f"CREATE ROLE {CHECKER} LOGIN")
        for node in self.standbys:
            node.start()
            self.await_streaming(node)

    def resume(self) -> None:
        """Undo pause() of any node."""
        for node in self.nodes:
            node.resume()

    def restore(self) -> None:
        """Make it whole again: a primary, which may be another than before, and standbys that follow it."""
        self.resume()
        self.primary.start()
        self.primary.set("synchronous_standby_names", "")
        for node in self.nodes:
            if node is not self.primary:
                self._repair(node)
        self.set_synchronous(self.standbys[:1])

    def close(self) -> None:
        """End the nodes and remove their directories. May be called twice."""
        for node in reversed(self.nodes):
            node.close()

    def _repair(self, node: PostgreSQLNode) -> None:
        if node in self._retired:
            self.rebuild(node)
            return
        node.start()
        if node.query("SHOW primary_conninfo") != self.primary.conninfo:
            node.follow(self.primary)
        self.await_streaming(node)


_RECEIVED = "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())"


def _has_no_more(node: PostgreSQLNode, other: PostgreSQLNode) -> bool:
    """Whether a standby has received no more than another has. False as well: it cannot say."""
    if not node.running or node.paused:
        return False
    return bool(other.query(f"{_RECEIVED} >= '{node.query(_RECEIVED)}'"))


def _await(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _holds(condition):
        if time.monotonic() > deadline:
            raise ServerFailedError(f"waited {START_SECONDS:g} s in vain until {what}")
        time.sleep(0.05)


def _holds(condition: Callable[[], object]) -> bool:
    try:
        return bool(condition())
    except psycopg.OperationalError:
        return False
