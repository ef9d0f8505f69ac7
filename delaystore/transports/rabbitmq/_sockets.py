"""The sockets below pika's connections, for which pika has no public way."""

import fcntl
import struct
import termios
from typing import Any

_NUMBER = struct.Struct("i")


def unsent_by_us(connection: Any) -> int:
    """Bytes that wait in pika's buffer for the socket to take them."""
    transport = connection._transport
    return 0 if transport is None else transport.get_write_buffer_size()


def unsent(connection: Any) -> int:
    """Bytes that the peer's machine has not acknowledged: in pika's buffer, and in the socket's where that is known."""
    return unsent_by_us(connection) + _in_socket(connection)


def _in_socket(connection: Any) -> int:
    transport = connection._transport
    if transport is None or transport._sock is None:
        return 0
    try:
        answer = fcntl.ioctl(transport._sock.fileno(), termios.TIOCOUTQ, bytes(_NUMBER.size))
    except (OSError, ValueError):
        return 0  # a system that does not tell
    number: int = _NUMBER.unpack(answer)[0]
    return number


def drop_socket(connection: Any) -> None:
    """Close the socket of `connection` without telling the broker."""
    transport = getattr(connection, "_transport", None)
    if transport is not None and transport._sock is not None:
        transport._sock.close()
