"""A PostgreSQL that follows another one, read-only until it is promoted."""

from pathlib import Path

import psycopg
from sqlalchemy import make_url

from tests.servers import PostgreSQL


class Standby(PostgreSQL):
    """A streaming standby of `primary`, which runs: the same databases, roles and passwords."""

    def __init__(self, primary: PostgreSQL) -> None:
        super().__init__(primary.settings)
        self._primary = primary
        self._url, self._admin_url = (make_url(url).set(port=self.port) for url in (primary.url, primary.admin_url))

    def promote(self) -> None:
        """Make it a primary; returns when it is one."""
        administer(self, "SELECT pg_promote()")

    def _prepare(self) -> None:
        source = make_url(self._primary.admin_url).set(drivername="postgresql").render_as_string(hide_password=False)
        program = str(Path(self._initdb).with_name("pg_basebackup"))
        options = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname", source]
        self._run([program, "--pgdata", str(self._data), *options])


def administer(server: PostgreSQL, statement: str) -> None:
    """Run a statement on `server` as the superuser."""
    url = make_url(server.admin_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)
