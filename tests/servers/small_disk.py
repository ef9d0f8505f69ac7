"""A disk of its own for a server, small enough to be filled."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

from tests.servers.errors import ServerMissingError

_PIECE: Final = bytes(65536)


class SmallDisk:
    """So many megabytes in memory, at `path`. A context manager. Some servers are put there by `place`.

    Raises ServerMissingError where mounting is not permitted.
    """

    def __init__(self, megabytes: int) -> None:
        self._megabytes = megabytes

    def __enter__(self) -> Self:
        self.path = Path(tempfile.mkdtemp(prefix="delaystore-disk-"))
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m,mode=1777", "none", str(self.path)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            self.path.rmdir()
            raise ServerMissingError("a small disk needs root, and a machine that permits mounting") from None
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True, capture_output=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def fill(self) -> None:
        """Leave no room."""
        with (self.path / "filling").open("ab", buffering=0) as file:
            try:
                while file.write(_PIECE) == len(_PIECE):
                    pass
            except OSError:
                return

    def free(self) -> None:
        """Undo fill()."""
        (self.path / "filling").unlink(missing_ok=True)
