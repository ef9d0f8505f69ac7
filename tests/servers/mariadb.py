"""A private MariaDB server, and databases of one's own on any MariaDB or MySQL server."""

import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pymysql
from sqlalchemy import URL, make_url

from tests.servers.ports import free_port
from tests.servers.programs import find_program
from tests.servers.server import Server

PROGRAMS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/opt/mariadb/bin")


class MariaDBDatabases:
    """Makes and drops databases on a server that runs.

    `url` is a SQLAlchemy URL whose user may create databases, `admin_url` (or the same) one that may create users.
    """

    def __init__(self, url: str, admin_url: str | None = None) -> None:
        self._url = make_url(url)
        self._admin_url = make_url(admin_url or url)

    @property
    def url(self) -> str:
        """The URL of the server, with the password; it names no database unless it was given one."""
        return self._url.render_as_string(hide_password=False)

    @property
    def admin_url(self) -> str:
        """The URL that users are created by: one with all privileges, on a private server."""
        return self._admin_url.render_as_string(hide_password=False)

    def create_database(self) -> str:
        """Make an empty database; its URL."""
        name = f"delaystore_{secrets.token_hex(6)}"
        self._execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return self._url.set(database=name).render_as_string(hide_password=False)

    def drop_database(self, url: str) -> None:
        """Drop a database that create_database() made; ends what is still connected to it, whose locks would bar us."""
        self.disconnect(url)
        self._execute(f"DROP DATABASE IF EXISTS `{make_url(url).database}`")

    def disconnect(self, url: str) -> None:
        """End what is connected to a database."""
        name = make_url(url).database or ""
        with _connect(self._url) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
            for (session,) in cursor.fetchall():
                with suppress(pymysql.OperationalError):  # it has ended by itself
                    cursor.execute(f"KILL {int(session)}")

    def create_role(self, name: str, password: str, database_url: str) -> str:
        """Make a user who may log in and nothing else; the URL of the database for that user."""
        with _connect(self._admin_url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE USER %s@'%%' IDENTIFIED BY %s", (name, password))
        return make_url(database_url).set(username=name, password=password).render_as_string(hide_password=False)

    def _execute(self, statement: str) -> None:
        with _connect(self._url) as connection, connection.cursor() as cursor:
            cursor.execute(statement)


class MariaDB(Server, MariaDBDatabases):
    """A MariaDB server; passwords are checked, every commit is flushed to disk (InnoDB's default).

    `settings` are server variables, such as {"innodb_flush_log_at_trx_commit": "2"}.
    `url` belongs to the user `delaystore`, who may do anything with databases named `delaystore_...`, and nothing else.
    """

    _account = "mysql"
    _scheme: ClassVar[str] = "mariadb+pymysql"

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._find_programs()
        self.port = free_port()
        self.settings = {"max_connections": "200", **(settings or {})}
        Server.__init__(self)
        MariaDBDatabases.__init__(self, self._user_url("delaystore"), self._user_url("admin"))

    def _find_programs(self) -> None:
        self._server = find_program("mariadbd", *PROGRAMS)
        self._install = find_program("mariadb-install-db", *PROGRAMS)

    def _user_url(self, user: str) -> str:
        return f"{self._scheme}://{user}:{secrets.token_urlsafe(12)}@127.0.0.1:{self.port}?charset=utf8mb4"

    def _prepare(self) -> None:
        (self.directory / "tmp").mkdir()
        if account := self._run_as():
            shutil.chown(self.directory / "tmp", account, account)
        self._make_data()
        self._write("users.sql", self._users())

    def _make_data(self) -> None:
        self._run(
            [
                *(self._install, "--no-defaults", f"--datadir={self._data}", "--skip-test-db"),
                *("--auth-root-authentication-method=normal", f"--tmpdir={self.directory / 'tmp'}"),
            ]
        )

    def _users(self) -> str:
        """SQL that the server runs at each start, before it lets anybody in; one statement a line."""
        return "\n".join(
            [
                *self._nobody(),
                f"CREATE USER IF NOT EXISTS admin@'%' IDENTIFIED BY '{self._admin_url.password}';",
                "GRANT ALL PRIVILEGES ON *.* TO admin@'%' WITH GRANT OPTION;",
                f"CREATE USER IF NOT EXISTS delaystore@'%' IDENTIFIED BY '{self._url.password}';",
                r"GRANT ALL PRIVILEGES ON `delaystore\_%`.* TO delaystore@'%';",
                "",
            ]
        )

    def _nobody(self) -> Sequence[str]:
        """SQL that removes the users whom the installation made."""
        return ["DELETE FROM mysql.global_priv WHERE User IN ('', 'root');", "FLUSH PRIVILEGES;"]

    def _command(self) -> Sequence[str]:
        settings = {
            "port": str(self.port),
            "bind-address": "127.0.0.1",
            "datadir": str(self._data),
            "socket": str(self.directory / "socket"),
            "pid-file": str(self.directory / "pid"),
            "init-file": str(self.directory / "users.sql"),
            "tmpdir": str(self.directory / "tmp"),
            **self.settings,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self._server, "--no-defaults", "--skip-name-resolve", *options]

    def _answers(self) -> bool:
        try:
            _connect(self._url).close()
        except pymysql.OperationalError:
            return False
        return True

    @property
    def _data(self) -> Path:
        return self.directory / "data"


def _connect(url: URL) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    return pymysql.connect(
        host=url.host or "127.0.0.1",
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        connect_timeout=10,
        autocommit=True,
    )
