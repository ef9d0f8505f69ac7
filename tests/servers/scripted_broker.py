"""A listener that speaks as much AMQP 0-9-1 as it is told: what no real broker does, such as falling silent."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from types import TracebackType
from typing import Any, Final, Self

from pika import frame, spec

Answer = Callable[..., Any]
"""From a method to the one that answers it; None: nothing does. Of a publish it is given the method, its delivery
tag, and a function that says something on its channel, then or later."""
HANDSHAKE: Final[Mapping[type, Answer]] = {
    spec.Connection.StartOk: lambda _: spec.Connection.Tune(100, 131072, 0),
    spec.Connection.TuneOk: lambda _: None,
    spec.Connection.Open: lambda _: spec.Connection.OpenOk(),
    spec.Connection.Close: lambda _: spec.Connection.CloseOk(),
    spec.Channel.Open: lambda _: spec.Channel.OpenOk(),
    spec.Channel.Close: lambda _: spec.Channel.CloseOk(),
}
_CAPABILITIES: Final = {"publisher_confirms": True, "basic.nack": True, "consumer_cancel_notify": True}
_HEADER: Final = b"AMQP\x00\x00\x09\x01"


class ScriptedBroker:
    """Answers methods by `answers`, and those that are not there never.

    `greets`: False: it says nothing at all, as a frozen node does. `pace`: bytes a second that it reads, by a narrow
    link; None: as many as come. `place`: address and port; port 0: any free one.
    """

    def __init__(
        self,
        answers: Mapping[type, Answer] = HANDSHAKE,
        *,
        greets: bool = True,
        pace: int | None = None,
        place: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._answers = answers
        self._greets = greets
        self._pace = pace
        self._listener = socket.create_server(place)
        if pace is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self._open: list[socket.socket] = []
        self._tags: Counter[tuple[socket.socket, int]] = Counter()
        """Publishes on each channel."""
        self._publishes: dict[tuple[socket.socket, int], Any] = {}
        """On each channel, the one whose content has not come whole."""
        self._missing: Counter[tuple[socket.socket, int]] = Counter()
        """Bytes of that content."""
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def place(self) -> str:
        """Its address and port, as a URL has them."""
        address, port = self._listener.getsockname()[:2]
        return f"{address}:{port}"

    @property
    def url(self) -> str:
        """Its AMQP URL."""
        return f"amqp://{self.place}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for one in (self._listener, *self._open):
            with closing(one):
                _shut(one)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(peer)
            self._threads.append(threading.Thread(target=self._serve, args=(peer,)))
            self._threads[-1].start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            if peer.recv(len(_HEADER), socket.MSG_WAITALL) == _HEADER and self._greets:
                _say(peer, 0, spec.Connection.Start(0, 9, {"capabilities": _CAPABILITIES}, b"PLAIN", b"en_US"))
            received = b""
            while more := peer.recv(65536):
                received += more
                if self._pace is not None:
                    time.sleep(len(more) / self._pace)
                while (found := frame.decode_frame(received))[1] is not None:
                    received = received[found[0] :]
                    self._answer(peer, found[1])
        except OSError:
            return

    def _answer(self, peer: socket.socket, value: Any) -> None:
        channel = peer, value.channel_number
        if isinstance(value, frame.Header):
            self._missing[channel] = value.body_size
        elif isinstance(value, frame.Body):
            self._missing[channel] -= len(value.fragment)
        elif isinstance(value, frame.Method):
            self._take(channel, value.method)
            return
        if self._missing[channel] == 0 and channel in self._publishes:
            self._take(channel, self._publishes.pop(channel), whole=True)

    def _take(self, channel: tuple[socket.socket, int], method: Any, *, whole: bool = False) -> None:
        answer = self._answers.get(type(method))
        if isinstance(method, spec.Channel.Open):
            self._tags[channel] = 0
        if answer is None:
            return
        if not isinstance(method, spec.Basic.Publish):
            said = answer(method)
        elif whole:
            self._tags[channel] += 1
            said = answer(method, self._tags[channel], lambda later: _say(*channel, later))
        else:
            self._publishes[channel] = method
            return
        if said is not None:
            _say(*channel, said)


def _say(peer: socket.socket, channel: int, method: Any) -> None:
    peer.sendall(frame.Method(channel, method).marshal())


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
