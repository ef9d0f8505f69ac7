"""Starting the process that serves commands, once for all tests of a process that need it."""

import subprocess
import sys
import tempfile
from atexit import register
from functools import cache
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]


@cache
def commands_folder() -> str:
    """For the front of a PATH: there is a `delaystore` in it."""
    made = Path(tempfile.mkdtemp(prefix="delaystore-commands-"))
    program = made / "delaystore"
    program.write_text(f"#!{sys.executable} -IS\n{(HERE / 'asking.py').read_text()}")
    program.chmod(0o755)
    command = [sys.executable, "-m", "tests.preloaded.serving", str(made)]
    with (made / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    register(server.communicate)
    assert server.stdout is not None
    while line := server.stdout.readline():
        if line == b"ready\n":
            return str(made)
    raise AssertionError((made / "log").read_text())
