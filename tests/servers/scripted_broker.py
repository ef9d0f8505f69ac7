"""A listener that speaks as much AMQP 0-9-1 as it is told: what no real broker does, such as falling silent."""

import socket
import threading
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

    `greets`: False: it says nothing at all, as a frozen node does. `place`: address and port; port 0: any free one.
    """

    def __init__(
        self,
        answers: Mapping[type, Answer] = HANDSHAKE,
        *,
        greets: bool = True,
        place: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._answers = answers
        self._greets = greets
        self._listener = socket.create_server(place)
        self._open: list[socket.socket] = []
        self._tags: Counter[tuple[socket.socket, int]] = Counter()
        """Publishes on each channel."""
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
                while (found := frame.decode_frame(received))[1] is not None:
                    received = received[found[0] :]
                    self._answer(peer, found[1])
        except OSError:
            return

    def _answer(self, peer: socket.socket, value: Any) -> None:
        answer = self._answers.get(type(value.method)) if isinstance(value, frame.Method) else None
        if answer is None:
            return
        channel = peer, value.channel_number
        if isinstance(value.method, spec.Basic.Publish):
            self._tags[channel] += 1
            method = answer(value.method, self._tags[channel], lambda later: _say(*channel, later))
        else:
            if isinstance(value.method, spec.Channel.Open):
                self._tags[channel] = 0
            method = answer(value.method)
        if method is not None:
            _say(peer, value.channel_number, method)


def _say(peer: socket.socket, channel: int, method: Any) -> None:
    peer.sendall(frame.Method(channel, method).marshal())


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
