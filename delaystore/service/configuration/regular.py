"""Files that can be read, and read again: neither pipes nor devices, which may wait for ever, or never end."""

import stat
from pathlib import Path

from delaystore.errors import ConfigurationError


def check_regular(path: Path, name: str) -> None:
    """Raise ConfigurationError for what is there, and no regular file. `name`: what errors call it."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # whoever reads it says why that cannot be
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ConfigurationError(
            f"{name} is no regular file, and could not be read again; write what it says into a file, and name that"
        )
