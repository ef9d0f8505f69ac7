"""A private MySQL server, for the tests that have MariaDB."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.servers.errors import ServerMissingError
from tests.servers.mariadb import MariaDB
from tests.servers.programs import find_program

# The first is where scripts/matrix.sh unpacks it: Debian's packages of MySQL and MariaDB exclude each other.
PROGRAMS = ("/opt/mysql/usr/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/opt/mysql/bin")


class MySQL(MariaDB):
    """A MySQL server; as `MariaDB` in all that tests see."""

    _scheme: ClassVar[str] = "mysql+pymysql"

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__({"secure-file-priv": "", "mysqlx": "OFF", **(settings or {})})

    def _find_programs(self) -> None:
        self._server = find_program("mysqld", *PROGRAMS)
        version = subprocess.run([self._server, "--version"], capture_output=True, text=True, check=True).stdout
        if "MariaDB" in version:
            raise ServerMissingError(f"{self._server} is MariaDB; install MySQL, or set DELAYSTORE_TEST_MYSQL_URL")

    def _make_data(self) -> None:
        folders = self._folders()
        self._run([self._server, "--no-defaults", *folders, f"--datadir={self._data}", "--initialize-insecure"])

    def _nobody(self) -> Sequence[str]:
        return ["DROP USER IF EXISTS root@localhost;"]

    def _command(self) -> Sequence[str]:
        program, no_defaults, *options = super()._command()
        return [program, no_defaults, *self._folders(), *options]

    def _folders(self) -> Sequence[str]:
        """Where its own files are: those at the usual places may be MariaDB's."""
        base = Path(self._server).parents[1]
        if not (base / "share/mysql/charsets").is_dir():
            return []
        messages = f"--lc-messages-dir={base}/share/mysql"
        return [
            *(f"--basedir={base}", messages, f"--character-sets-dir={base}/share/mysql/charsets"),
            f"--plugin-dir={base}/lib/mysql/plugin",
        ]
