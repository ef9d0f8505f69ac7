"""A page that is walked section by section, with a look at the servers in between."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.documents import ROOT, Block, blocks_of
from tests.preloaded.starting import commands_folder

INSTALLS = "pip install"


class Walk:
    """The commands of a page, in `folder`. `real`: what stands in the tests for addresses in the page.

    `settings`: the section whose exported variables all commands have.
    """

    def __init__(self, page: str, settings: str, real: Mapping[str, str], folder: Path) -> None:
        self._text = (ROOT / page).read_text()
        self._real = real
        self._folder = folder
        lines = "\n".join(self.commands(settings)).splitlines()
        self._exports = "\n".join(line for line in lines if line.startswith("export"))

    def blocks(self, section: str) -> list[Block]:
        """All blocks below a heading."""
        return blocks_of(self._text.partition(f"\n## {section}\n")[2].partition("\n## ")[0])

    def commands(self, section: str) -> list[str]:
        """The blocks of commands below a heading, but for what installs."""
        found = [block.text for block in self.blocks(section) if block.language == "bash"]
        return [self._with_real_addresses(text) for text in found if not text.startswith(INSTALLS)]

    def run(self, commands: str) -> str:
        """What they print; each of them must succeed."""
        done = subprocess.run(self._bash(commands), **self._where(), capture_output=True, check=False)
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return str(done.stdout)

    @contextmanager
    def running(self, commands: str, wait: Callable[[], None]) -> Iterator[None]:
        """They run in the background for the block, which begins behind `wait`; SIGTERM ends them."""
        process = subprocess.Popen(self._bash(f"{commands}\nwait"), **self._where(), start_new_session=True)
        try:
            wait()
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)

    def _bash(self, commands: str) -> list[str]:
        return ["bash", "-euc", f"{self._exports}\n{commands}"]

    def _where(self) -> dict[str, Any]:
        path = os.pathsep.join([commands_folder(), str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "300"}
        return {"cwd": self._folder, "env": environment, "text": True}

    def _with_real_addresses(self, text: str) -> str:
        for written, real in self._real.items():
            text = text.replace(written, real)
        return text
