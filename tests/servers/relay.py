"""Carries bytes between the clients of a port and a server, as well or as badly as it is told. For an asyncio loop."""

import asyncio
import socket
import struct
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.servers.ports import free_port

CHUNK = 65536
_WAITING = 16
"""Chunks that are held before the one who sends has to wait."""
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds: close() answers RST


@dataclass
class Flow:
    """How bytes go in one direction: `delay` in seconds, `rate` in bytes per second (None: no limit).

    `swallowed`: they go nowhere. `passing`: cleared, they wait.
    """

    delay: float = 0.0
    rate: float | None = None
    swallowed: bool = False
    passing: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.passing.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the reader's end."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_WAITING)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take(reader, waiting))
            tasks.create_task(self._give(waiting, writer))

    async def _take(self, reader: asyncio.StreamReader, waiting: asyncio.Queue[tuple[float, bytes]]) -> None:
        now = asyncio.get_running_loop().time
        chunk = b"-"
        while chunk:
            chunk = await reader.read(CHUNK if self.rate is None else max(1, min(CHUNK, int(self.rate / 10))))
            await waiting.put((now() + self.delay, chunk))

    async def _give(self, waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due, chunk = await waiting.get()
            await asyncio.sleep(max(0.0, due - now()))
            await self.passing.wait()
            if not chunk:
                writer.write_eof()
                return
            if not self.swallowed:
                writer.write(chunk)
                await writer.drain()
            if self.rate is not None:
                await asyncio.sleep(len(chunk) / self.rate)


class Relay:
    """Listens on `port` of the loopback interface and carries to `target`, another port.

    `requests`: what goes to the server; `answers`: what comes back.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.target = target
        self.requests, self.answers = Flow(), Flow()
        self._open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    async def listen(self) -> None:
        """Let clients in."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Let nobody in, and end what is open."""
        self._listener.close()
        await self.cut()

    async def cut(self, *, reset: bool = True) -> None:
        """End all connections, on both sides: by RST, or by FIN."""
        tasks = list(self._open)
        for task, writers in self._open.items():
            for writer in writers:
                _end(writer, reset=reset)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = self._open[task] = [writer]
        try:
            with suppress(OSError, asyncio.CancelledError, ExceptionGroup):
                await self._connect(reader, writers)
        finally:
            del self._open[task]
            for one in writers:
                _end(one, reset=False)

    async def _connect(self, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter]) -> None:
        await self.requests.passing.wait()
        back, there = await asyncio.open_connection("127.0.0.1", self.target)
        writers.append(there)
        ways: list[Awaitable[None]] = [self.requests.carry(reader, there), self.answers.carry(back, writers[0])]
        await asyncio.gather(*ways)


def _end(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    with suppress(OSError):
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    if reset:
        writer.transport.abort()
    else:
        writer.close()
