"""delaystore beside a broker, as a user runs it: its commands, as processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from typing import Self

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from tests.faults.patience import PATIENCE, wait_until
from tests.preloaded.forked import ForkedModule

ENDPOINT = "shop"
CLOCK = 0.002
"""Seconds by which clocks may differ that count whole milliseconds."""


class Command:
    """A command that runs until it is ended. A context manager; at its end it has stopped by SIGTERM, with code 0."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str], ready: str) -> None:
        self._arguments = arguments
        self._environment = environment
        self._ready = ready

    def __enter__(self) -> Self:
        self._log = TemporaryFile()
        self._process = ForkedModule(
            "delaystore.cli", self._arguments, self._environment, stdout=subprocess.DEVNULL, stderr=self._log
        )
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(PATIENCE)
        finally:
            self._process.kill()
        log = self.log
        self._log.close()
        if kind is not None:
            sys.stderr.write(log)
        else:
            assert (code, "Traceback" in log) == (0, False), log

    @property
    def log(self) -> str:
        """What it has said so far."""
        return os.pread(self._log.fileno(), 1_000_000, 0).decode()

    def await_ready(self) -> Self:
        """Wait until it says that it is at work."""
        wait_until(lambda: self._ready in self.log or self._process.poll() is not None, f"it says {self._ready!r}")
        assert self._process.poll() is None, self.log
        return self


class Service:
    """`delaystore dispatch`, and `delaystore ingress run` for each exchange, between a broker and a store.

    A context manager. `queue`: an ingress queue in place of exchanges; messages then say by themselves where they go.
    """

    def __init__(self, store: str, broker: str, management: str, *exchanges: str, queue: str = "") -> None:
        self.url, self.exchanges = broker, exchanges
        self.environment = {
            "DELAYSTORE_STORE": store,
            "DELAYSTORE_BROKER": broker,
            "DELAYSTORE_TRANSPORT": broker,
            "DELAYSTORE_MANAGEMENT": management,
            "DELAYSTORE_ENDPOINT": ENDPOINT,
        }
        self._entrances = [["--queue", queue]] if queue else [[exchange] for exchange in exchanges]
        self._running = ExitStack()

    @property
    def exchange(self) -> str:
        """The exchange to publish to, where there is one."""
        (exchange,) = self.exchanges
        return exchange

    @property
    def out(self) -> str:
        """The exchange to which queues are bound, where there is one."""
        return f"{self.exchange}.out"

    @contextmanager
    def delivery(self) -> Iterator[DelayedDelivery]:
        """The endpoint, as a program opens it that looks at what waits."""
        delivery = DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(self.environment["DELAYSTORE_STORE"]))
        try:
            yield delivery
        finally:
            delivery.close()

    def attempt(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """A command, ended."""
        command = [sys.executable, "-m", "delaystore.cli", *arguments]
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)

    def run(self, *arguments: str) -> str:
        """What a command prints, which must not fail."""
        done = self.attempt(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create(self, *out_types: str) -> Self:
        """Declare the ingress of each exchange."""
        for exchange, out_type in zip(self.exchanges, out_types, strict=True):
            self.run("ingress", "create", exchange, "--type", out_type)
        return self

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            dispatch = Command(["dispatch"], self.environment, "dispatching for")
            ingresses = [
                Command(["ingress", "run", *entrance], self.environment, "consuming ") for entrance in self._entrances
            ]
            for command in [stack.enter_context(one) for one in (dispatch, *ingresses)]:
                command.await_ready()
            self._running = stack.pop_all()
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self._running.__exit__(kind, *rest)  # type: ignore[arg-type] # as it came
