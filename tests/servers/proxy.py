"""A TCP proxy in front of any server, which does to connections what networks and proxies do."""

from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

from tests.servers.loop_thread import LoopThread
from tests.servers.relay import Flow, Relay


class Proxy:
    """Listens on `port`; `target` is the port of the server behind it. A context manager.

    What is said of `requests` and `answers` concerns what clients send, and what they receive. Changes concern open
    connections as well as new ones.
    """

    def __init__(self, target: int) -> None:
        self._relay = Relay(target)
        self.port = self._relay.port

    def __enter__(self) -> Self:
        self._thread = LoopThread()
        self._thread.run(self._relay.listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.run(self._relay.close())
        self._thread.close()

    def url_of(self, url: str) -> str:
        """The URL of a server, through the proxy."""
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{user}@127.0.0.1:{self.port}" if user else f"127.0.0.1:{self.port}").geturl()

    def switch(self, target: int) -> None:
        """Lead new connections to another port; open ones stay where they are."""
        self._relay.target = target

    def cut(self, *, reset: bool = True) -> None:
        """End all connections, by RST or by FIN; new ones are let in."""
        self._thread.run(self._relay.cut(reset=reset))

    def hold(self) -> None:
        """Let nothing pass. What is sent meanwhile passes after pass_on(); so do new connections."""
        self._change(lambda flow: flow.passing.clear())

    def swallow(self) -> None:
        """Be a black hole: take everything, and let nothing pass. pass_on() cuts the connections that were open."""
        self._change(lambda flow: setattr(flow, "swallowed", True))

    def delay(self, *, requests: float = 0.0, answers: float = 0.0) -> None:
        """Let what is sent from now on arrive so many seconds later."""
        self._relay.requests.delay, self._relay.answers.delay = requests, answers

    def limit(self, *, requests: float | None = None, answers: float | None = None) -> None:
        """Let so many bytes per second pass on each connection; None: any number."""
        self._relay.requests.rate, self._relay.answers.rate = requests, answers

    def pass_on(self) -> None:
        """Undo all this."""
        if self._relay.requests.swallowed:
            self.cut()
        self.delay()
        self.limit()
        self._change(_let_pass)

    def _change(self, change: Callable[[Flow], None]) -> None:
        async def work() -> None:
            change(self._relay.requests)
            change(self._relay.answers)

        self._thread.run(work())


def _let_pass(flow: Flow) -> None:
    flow.swallowed = False
    flow.passing.set()
