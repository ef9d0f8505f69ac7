"""A private PostgreSQL server, and databases of one's own on any PostgreSQL server."""

import secrets
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from tests.servers.ports import free_port
from tests.servers.programs import find_program
from tests.servers.server import Server
from tests.servers.shifted_clock import ShiftedClock

NOTHING: Mapping[str, str] = MappingProxyType({})
QUICK_COPIES = "SELECT WHERE current_setting('server_version_num')::int >= 150000 AND current_setting('fsync') = 'off'"
"""A row, if files are copied sooner than pages are logged: without fsync the checkpoints that it takes are quick."""
PROGRAMS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


class PostgreSQLDatabases:
    """Makes and drops databases on a server that runs.

    `url` is a SQLAlchemy URL whose role may create databases, `admin_url` (or the same) one that may create roles.
    """

    def __init__(self, url: str, admin_url: str | None = None) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")
        self._admin_url = make_url(admin_url or url).set(drivername="postgresql+psycopg")

    @property
    def url(self) -> str:
        """The URL of the server's own database, with the password."""
        return self._url.render_as_string(hide_password=False)

    @property
    def admin_url(self) -> str:
        """The URL that roles are created by: the superuser's, on a private server."""
        return self._admin_url.render_as_string(hide_password=False)

    def create_database(
        self, encoding: str | None = None, settings: Mapping[str, str] = NOTHING, template: str | None = None
    ) -> str:
        """Make a database; its URL. `encoding`: None: the server's own; `settings`: of its sessions.

        `template`: the URL of the database that it is a copy of, to which nothing is connected; None: it is empty.
        """
        name = f"delaystore_{secrets.token_hex(6)}"
        create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if encoding is not None:
            create += sql.SQL(" TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C' ENCODING {}").format(encoding)
        if template is not None:
            create += sql.SQL(" TEMPLATE {}").format(sql.Identifier(make_url(template).database or ""))
        with connect(self._url) as connection:
            if connection.execute(QUICK_COPIES).fetchone():
                create += sql.SQL(" STRATEGY FILE_COPY")
            connection.execute(create)
        for setting, value in settings.items():
            change = sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                sql.Identifier(name), sql.Identifier(setting), sql.Literal(value)
            )
            self._execute(change)
        return self._url.set(database=name).render_as_string(hide_password=False)

    def drop_database(self, url: str) -> None:
        """Drop a database that create_database() made, and close what is still connected to it."""
        name = make_url(url).database or ""
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        # autovacuum may be at work there, and only a superuser may end it
        with connect(self._admin_url) as connection:
            connection.execute(statement)

    def create_role(self, name: str, password: str, database_url: str, member_of: str | None = None) -> str:
        """Make a role that may log in, and what `member_of` may; the URL of the database for that role."""
        statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), sql.Literal(password))
        if member_of is not None:
            statement += sql.SQL(" IN ROLE {}").format(sql.Identifier(member_of))
        with connect(self._admin_url) as connection:
            connection.execute(statement)
        return make_url(database_url).set(username=name, password=password).render_as_string(hide_password=False)

    def _execute(self, statement: sql.Composed) -> None:
        with connect(self._url) as connection:
            connection.execute(statement)


class PostgreSQL(Server, PostgreSQLDatabases):
    """A PostgreSQL server; passwords are checked (SCRAM), fsync and synchronous_commit are on.

    `settings` are server parameters, such as {"fsync": "off"}; they may be changed between a stop and a start.
    `clock`: what it takes for the time; None: the machine's. `place`: where its directory is made; None: where
    temporary files are.
    `url` belongs to the role `delaystore`, which may create databases and is no superuser.
    """

    _account = "postgres"
    _stop_signal = signal.SIGINT  # "fast": ends sessions, then shuts down cleanly

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        clock: ShiftedClock | None = None,
        place: Path | None = None,
    ) -> None:
        self.clock = clock
        self._initdb = find_program("initdb", *PROGRAMS)
        self._postgres = self._program("postgres")
        self.port = free_port()
        self.settings = {"max_connections": "200", **(settings or {})}
        Server.__init__(self, place)
        PostgreSQLDatabases.__init__(self, self._role_url("delaystore"), self._role_url("postgres"))

    def _program(self, name: str) -> str:
        return str(Path(self._initdb).with_name(name))

    def _role_url(self, role: str) -> str:
        return f"postgresql+psycopg://{role}:{secrets.token_urlsafe(12)}@127.0.0.1:{self.port}/postgres"

    def _prepare(self) -> None:
        password = self._write("password", f"{self._admin_url.password}\n")
        self._run(
            [
                *(self._initdb, "--pgdata", str(self._data), "--no-sync", "--username", "postgres"),
                *("--auth", "scram-sha-256", "--pwfile", str(password), "--encoding", "UTF8", "--locale", "C"),
            ]
        )

    def _command(self) -> Sequence[str]:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",  # in the data directory: nothing stays in /dev/shm after a kill
            **self.settings,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = [self._postgres, "-D", str(self._data), *options]
        return command if self.clock is None else self.clock.wrap(command, self.directory)

    def _answers(self) -> bool:
        create = sql.SQL("CREATE ROLE delaystore LOGIN CREATEDB PASSWORD {}").format(sql.Literal(self._url.password))
        try:
            with connect(self._admin_url) as connection:
                known = connection.execute("SELECT FROM pg_roles WHERE rolname = 'delaystore'").fetchone()
                if known is None:
                    connection.execute(create)
        except psycopg.OperationalError:
            return False
        return True

    def _end(self) -> None:
        self.stop()  # killed, it would leave a segment of System V shared memory behind

    @property
    def _data(self) -> Path:
        return self.directory / "data"


def connect(url: URL) -> psycopg.Connection:
    """A connection that commits each statement. Raises psycopg.OperationalError."""
    return psycopg.connect(
        host=url.host,
        port=url.port,
        user=url.username,
        password=url.password,
        dbname=url.database,
        connect_timeout=10,
        autocommit=True,
    )
