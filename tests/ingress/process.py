"""An ingress in a process of its own, made to be killed."""

import json
import logging
import signal
import sys
import threading
from tempfile import TemporaryFile
from typing import Any, Self

import psutil

from tests.faults.patience import PATIENCE
from tests.ingress.ground import endpoint, running
from tests.preloaded.forked import ForkedModule


class IngressProcess:
    """An ingress from the broker at one URL into the store at another. A context manager; at its end it is gone."""

    def __init__(self, store: str, broker: str, **settings: Any) -> None:
        self._options = {"store": store, "broker": broker, "settings": settings}

    def __enter__(self) -> Self:
        self._log = TemporaryFile()
        self._process = ForkedModule(
            "tests.ingress.process", [json.dumps(self._options)], stdout=self._log, stderr=self._log
        )
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.kill()
        self._log.seek(0)
        log = self._log.read().decode()
        self._log.close()
        if kind is not None:
            sys.stderr.write(log)
        else:
            assert "Traceback" not in log, log

    @property
    def memory(self) -> int:
        """Bytes that it has in memory."""
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def kill(self) -> None:
        """SIGKILL; nothing happens if it has ended."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        self._process.terminate()
        return self._process.wait(PATIENCE)


def main() -> None:
    """Run an ingress until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    options = json.loads(sys.argv[1])
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with endpoint(options["store"]) as delivery, running(delivery, options["broker"], **options["settings"]):
        while not stopped.wait(0.1):
            pass


if __name__ == "__main__":
    main()
