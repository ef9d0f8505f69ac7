"""`delaystore serve` as a process, with real servers behind it."""

import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.dispatching import wait_until
from tests.integration.cli import started

PATIENCE = 60.0


class Serving:
    """A service that runs, and what it says, a line each."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, name="reader of serve", daemon=True)
        self._reader.start()

    def says(self, pattern: str, *, after: int = 0) -> re.Match[str]:
        """Wait for a line that has `pattern`, among those from the number `after` on."""
        found: list[re.Match[str]] = []

        def said() -> bool:
            found.extend(match for line in self.lines[after:] if (match := re.search(pattern, line)))
            return bool(found) or self.process.poll() is not None

        wait_until(said, f"{pattern!r} in {self.lines}")
        if not found:
            self._reader.join(PATIENCE)
            said()
        assert found, self.lines
        return found[0]

    @property
    def url(self) -> str:
        """Where the page is, without a slash at the end."""
        return self.says(r"^serving (http://\S+)/$").group(1)

    def probe(self, path: str = "/readyz", url: str | None = None) -> tuple[int, Any]:
        """The status and the document that a probe answers."""
        answer = httpx.get(f"{url or self.url}{path}")
        return answer.status_code, answer.json()

    def wait_until_ready(self) -> None:
        """Wait until each part does its part."""
        wait_until(lambda: self.probe()[0] == 200, "readiness")

    def reload(self) -> str:
        """SIGHUP; what it says of it."""
        after = len(self.lines)
        self.process.send_signal(signal.SIGHUP)
        return self.says(r"^(reloaded|not reloaded).*", after=after).group()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; its exit code."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        """Wait for its end; its exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))


@contextmanager
def serving(
    *arguments: str, environment: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
) -> Iterator[Serving]:
    """A service for the block."""
    with started(["serve", *arguments], dict(environment or {}), pass_fds=pass_fds) as process:
        service = Serving(process)
        try:
            yield service
        finally:
            process.kill()
            service.end()


def endpoint(name: str, store: str, transport: str, *more: str) -> str:
    """The table of an endpoint, as a file has it; `more`: lines of it."""
    lines = [f"[endpoint.{name}]", f'store = "{store}"', f'transport = "{transport}"', *more]
    return "\n".join(lines) + "\n"


def write(path: Path, *parts: str) -> Path:
    """A configuration whose page is at any port that is free."""
    path.write_text("\n".join(['drain = "20s"', "[web]", 'listen = "127.0.0.1:0"', *parts]))
    return path
