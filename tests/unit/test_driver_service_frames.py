"""The driver service and its clients prove the key to each other, and run nothing that the other side sends."""

import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from delaystore.bulk.spark import _driver_client as frames
from delaystore.bulk.spark._driver_client import WrongKeyError, answer, ask

KEY = b"k" * 32
SECRET = ["take_snapshot", {"store": "postgresql://sales:Toy-pa55word@db/app"}]


class Answering:
    """The service's side of one call, in a thread."""

    def __init__(self, reply_to: Callable[[Any], Any] = lambda request: request, key: bytes = KEY) -> None:
        self.asked: list[Any] = []
        self.client, self._service = Pipe()
        self._thread = threading.Thread(target=self._run, args=(reply_to, key))
        self._thread.start()

    def __enter__(self) -> Connection:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._thread.join()

    def _run(self, reply_to: Callable[[Any], Any], key: bytes) -> None:
        with self._service, suppress(OSError, EOFError, ValueError, WrongKeyError):
            answer(self._service, key, lambda request: self.asked.append(request) or reply_to(request))


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_call_is_answered() -> None:
    with Answering(lambda request: {"result": request}) as client:
        assert ask(client, KEY, SECRET) == {"result": SECRET}


def test_who_has_another_key_is_told_nothing() -> None:
    answering = Answering(key=b"another")
    with answering as client, pytest.raises(WrongKeyError):
        ask(client, KEY, SECRET)
    assert not answering.asked


def test_another_program_at_the_port_gets_no_request() -> None:
    """The driver has ended, and its port is somebody else's now: that one sends the client's own words back, too."""
    client, thief = Pipe()
    with client:
        seen: list[bytes] = []

        def steal() -> None:
            with suppress(OSError, EOFError):
                nonce = thief.recv_bytes()
                seen.append(nonce)
                thief.send_bytes(nonce + nonce)
                seen.append(thief.recv_bytes())
            thief.close()

        stealing = threading.Thread(target=steal)
        stealing.start()
        with pytest.raises(WrongKeyError):
            ask(client, KEY, SECRET)
        client.close()
        stealing.join()
    assert b"Toy-pa55word" not in b"".join(seen)
    assert len(seen) == 1


def test_a_frame_that_is_heard_cannot_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    with Answering() as client:
        send = client.send_bytes
        monkeypatch.setattr(client, "send_bytes", lambda frame: sent.append(frame) or send(frame), raising=False)
        ask(client, KEY, SECRET)
    again = Answering()
    with again as client:
        for frame in sent:
            client.send_bytes(frame)
        client.recv_bytes()
        with pytest.raises(EOFError):
            client.recv_bytes()
    assert len(sent) == 2
    assert not again.asked


def test_a_request_is_no_reply() -> None:
    with Answering() as service:
        client, between = Pipe()
        with client, between:

            def send_back() -> None:
                with suppress(OSError, EOFError):
                    service.send_bytes(between.recv_bytes())
                    between.send_bytes(service.recv_bytes())
                    between.send_bytes(between.recv_bytes())

            sending = threading.Thread(target=send_back)
            sending.start()
            with pytest.raises(WrongKeyError):
                ask(client, KEY, SECRET)
            sending.join()


@pytest.mark.parametrize("key", [KEY, b"guessed"])
def test_nothing_is_unpickled(tmp_path: Path, key: bytes) -> None:
    """Not even from somebody who has the key."""
    file = tmp_path / "ran"
    with Answering() as client, suppress(EOFError, OSError, ValueError):
        client.send_bytes(nonce := b"n" * 32)
        call = nonce + client.recv_bytes()[:32]
        data = pickle.dumps(Bomb(file))
        client.send_bytes(frames._digest(key, frames._REQUEST + call + data) + data)
        client.recv_bytes()
    with Answering() as client, suppress(EOFError, OSError):
        client.send(Bomb(file))
        client.recv_bytes()
    assert not file.exists()


def test_a_frame_without_end_is_refused() -> None:
    """Whoever connects may say that a frame of gigabytes follows; no memory is taken for it."""
    answering = Answering()
    with answering as client:
        client._send(b"\xff\xff\xff\xff" + (2**40).to_bytes(8, "big"))
        with pytest.raises((EOFError, OSError)):
            client.recv_bytes()
    assert not answering.asked
