"""Programs of the former release, run from the project's own history."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RELEASES: Final[Mapping[str, str]] = {
    "0.1.0": "be2d3cc53fba45f20b4075431760d514ec5c9eb1",
    "with keys": "6c147d68d68b0d3f693914670bb1ad9f7738fcc1",
}
"""By name, the commits after which tables were changed."""
SENDER: Final = """
import sys, time
from delaystore import DelayedDelivery, SqlDelayedMessageStore

delivery = DelayedDelivery(endpoint=sys.argv[2], store=SqlDelayedMessageStore(sys.argv[1]))
while True:
    print(delivery.send("billing", b"from the former release", delay=1), flush=True)
    time.sleep(0.02)
"""


class FormerRelease:
    """The package as it was at the commit of `release`, unpacked in `folder`."""

    def __init__(self, release: str, folder: Path, environment: Mapping[str, str]) -> None:
        archive = subprocess.run(
            ["git", "archive", RELEASES[release], "delaystore"], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "--extract", "--directory", folder], input=archive.stdout, check=True)
        self._folder = folder
        self._environment = {**environment, "PYTHONPATH": str(folder)}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command `delaystore` with these arguments to its end."""
        command = [sys.executable, "-m", "delaystore.cli", *arguments]
        return subprocess.run(
            command, cwd=self._folder, env=self._environment, check=False, capture_output=True, text=True
        )

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Python with these arguments, killed at the end of the block if it still runs."""
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        with process:
            try:
                yield process
            finally:
                process.kill()
