"""A port mapper for Erlang nodes: one that leads the node that asks to others by ways of its own.

https://www.erlang.org/doc/apps/erts/erl_dist_protocol.html says what a mapper (epmd) is asked, and what it answers.
"""

import asyncio
import struct
from collections.abc import Mapping
from contextlib import suppress

_ALIVE, _PORT_PLEASE, _NAMES = b"x", b"z", b"n"
_ALIVE_ANSWERS = {False: struct.pack(">cBH", b"y", 0, 1), True: struct.pack(">cBI", b"v", 0, 1)}
"""Since protocol version 6 a node is given a number of four bytes, with another answer."""
_HIDDEN, _TCP, _VERSIONS = 72, 0, (6, 5)


class PortMapper:
    """Listens on `port` for one node. `registered`: all nodes that run and where, shared between their mappers.

    `ways`: the ports by which that node gets to others; to nodes that are not there it goes straight.
    """

    def __init__(self, port: int, registered: dict[str, int], ways: Mapping[str, int]) -> None:
        self._port = port
        self._registered = registered
        self._ways = ways

    async def listen(self) -> None:
        """Answer from now on."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    def close(self) -> None:
        """Let nobody in any more."""
        self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            (length,) = struct.unpack(">H", await reader.readexactly(2))
            request = await reader.readexactly(length)
            kind, content = request[:1], request[1:]
            if kind == _ALIVE:
                await self._keep(content, reader, writer)
            elif kind == _PORT_PLEASE:
                writer.write(self._where(content.decode()))
            elif kind == _NAMES:
                writer.write(self._all())
        writer.close()

    async def _keep(self, content: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A node is registered as long as it keeps the connection."""
        port, _, _, highest, _, length = struct.unpack(">HBBHHH", content[:10])
        name = content[10 : 10 + length].decode()
        self._registered[name] = port
        try:
            writer.write(_ALIVE_ANSWERS[highest >= _VERSIONS[0]])
            await reader.read()
        finally:
            self._registered.pop(name, None)

    def _where(self, name: str) -> bytes:
        if name not in self._registered:
            return b"w\x01"
        port = self._ways.get(name, self._registered[name])
        return struct.pack(">cBHBBHHH", b"w", 0, port, _HIDDEN, _TCP, *_VERSIONS, len(name)) + name.encode() + bytes(2)

    def _all(self) -> bytes:
        lines = "".join(f"name {name} at port {port}\n" for name, port in self._registered.items())
        return struct.pack(">I", self._port) + lines.encode()
