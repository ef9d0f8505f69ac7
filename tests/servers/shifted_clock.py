"""A clock that is ahead or behind, for a server that is started with it; it can be set while the server runs."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from tests.servers.errors import ServerMissingError

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")


class ShiftedClock:
    """The machine's clock and an offset. `wrap()`: the command by which a server goes by it.

    Raises ServerMissingError if libfaketime is not installed.
    """

    def __init__(self) -> None:
        found = [path for pattern in LIBRARIES for path in glob.glob(pattern)]
        if not found:
            raise ServerMissingError("libfaketime is not installed; scripts/install-servers.sh installs it")
        self._library = found[0]
        self._file: Path | None = None
        self.offset = 0.0
        """Seconds by which it is ahead."""

    def wrap(self, command: Sequence[str], directory: Path) -> Sequence[str]:
        """The command line of a server that has this directory; the offset is kept there."""
        self._file = directory / "clock"
        self._write(self._file)
        variables = {
            "LD_PRELOAD": self._library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        return ["env", *(f"{name}={value}" for name, value in variables.items()), *command]

    def set(self, offset: float) -> None:
        """Be ahead by so many seconds from now on; behind, if they are negative."""
        self.offset = offset
        if self._file is not None:
            self._write(self._file)

    def _write(self, file: Path) -> None:
        new = file.with_suffix(".new")
        new.write_text(f"{self.offset:+f}")
        new.chmod(0o644)
        os.replace(new, file)
