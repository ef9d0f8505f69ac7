"""Where a server's programs are."""

import glob
import os
import re
import shutil

from tests.servers.errors import ServerMissingError


def find_program(name: str, *folders: str) -> str:
    """The path of a program: in the first of `folders` that has it, else on PATH.

    `folders` are glob patterns; of several versions the highest is taken.
    Raises ServerMissingError, naming what to run.
    """
    for pattern in folders:
        for folder in sorted(glob.glob(pattern), key=_version, reverse=True):
            if os.access(path := os.path.join(folder, name), os.X_OK):
                return path
    if found := shutil.which(name):
        return found
    raise ServerMissingError(f"{name} is not installed; scripts/install-servers.sh installs the servers the tests need")


def _version(folder: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder)]
