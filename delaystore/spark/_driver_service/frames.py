"""What the driver service and its clients say to each other: JSON, in frames that prove the key that both know.

Nothing is unpickled, so no frame can run code. Each side draws a nonce for each call. The service proves the key first,
since a request holds a store's URL, and another program may have the port of a driver that has ended. Each frame's
digest covers both nonces and the frame's kind: none can be sent again, or back.
"""

import hmac
import json
import secrets
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

_NONCE: Final = 32
_DIGEST: Final = 32
"""Bytes of SHA-256."""
_LARGEST: Final = 2**20
"""Bytes of a frame; far more than any call needs."""
_GREETING, _REQUEST, _REPLY = b"greeting", b"request.", b"reply..."


class WrongKeyError(Exception):
    """The other side does not know the key."""


def ask(connection: Connection, key: bytes, request: Any) -> Any:
    """The service's reply to `request`. Raises WrongKeyError, and OSError or EOFError for a lost connection."""
    mine = secrets.token_bytes(_NONCE)
    connection.send_bytes(mine)
    greeting = connection.recv_bytes(_NONCE + _DIGEST)
    call = mine + greeting[:_NONCE]
    _check(greeting[_NONCE:], key, _GREETING + call)
    _send(connection, key, _REQUEST + call, request)
    return _received(connection, key, _REPLY + call)


def answer(connection: Connection, key: bytes, reply_to: Callable[[Any], Any]) -> None:
    """Answer one call with what `reply_to` makes of its request. Raises as `ask`."""
    theirs = connection.recv_bytes(_NONCE)
    mine = secrets.token_bytes(_NONCE)
    call = theirs + mine
    connection.send_bytes(mine + _digest(key, _GREETING + call))
    _send(connection, key, _REPLY + call, reply_to(_received(connection, key, _REQUEST + call)))


def _send(connection: Connection, key: bytes, kind: bytes, content: Any) -> None:
    data = json.dumps(content).encode()
    connection.send_bytes(_digest(key, kind + data) + data)


def _received(connection: Connection, key: bytes, kind: bytes) -> Any:
    frame = connection.recv_bytes(_LARGEST)
    data = frame[_DIGEST:]
    _check(frame[:_DIGEST], key, kind + data)
    return json.loads(data)


def _check(digest: bytes, key: bytes, content: bytes) -> None:
    if not hmac.compare_digest(digest, _digest(key, content)):
        raise WrongKeyError


def _digest(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")
