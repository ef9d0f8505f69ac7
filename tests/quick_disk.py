"""Temporary files in memory, where there is plenty: what makes a database would else wait for the disk at each step.

A process that is killed loses nothing by it, no more than on a disk: both keep what was written. TMPDIR, where it is
set, says where they are instead.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

from psutil import virtual_memory

MEMORY: Final = Path("/dev/shm")
ENOUGH: Final = 8 * 2**30
"""Bytes: what the servers of some workers take, several times."""


def use_memory() -> None:
    """Have this process, and those that it starts, make temporary files there."""
    if "TMPDIR" not in os.environ and _has_room():
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # it is asked anew


def _has_room() -> bool:
    if not os.access(MEMORY, os.W_OK):
        return False
    found = os.statvfs(MEMORY)
    free = min(found.f_bavail * found.f_frsize, virtual_memory().available)
    return free >= ENOUGH and not found.f_flag & os.ST_NOEXEC
