"""The page as a process of its own, with real servers behind it."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.integration.cli import started

PATIENCE = 30.0


class Served:
    """`delaystore web`, once it answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        self.line = process.stderr.readline()
        found = re.search(r"http://\S+/", self.line)
        assert found is not None, self.line + process.stderr.read()
        self.url = found.group().rstrip("/")

    def stop(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """End it by a signal; its exit code, and what it said."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said


@contextmanager
def served(*arguments: str, environment: Mapping[str, str]) -> Iterator[Served]:
    """The page for the block, at a free port."""
    process = started(["web", "--port", "0", *arguments], {**_clean(), **environment})
    try:
        yield Served(process)
    finally:
        process.kill()
        process.communicate()


def _clean() -> dict[str, str]:
    """A proxy of the developer's would be asked for 127.0.0.1, too."""
    return {name: "" for name in os.environ if name.lower().endswith("_proxy")}
