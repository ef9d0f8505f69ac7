"""The process that has imported the command line, and forks for each command. It ends with its standard input."""

import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from sqlalchemy import create_engine

from delaystore.cli.main import main as run

LARGEST: Final = 2**18
DRIVERS: Final = ("pika", "psycopg", "pymysql")
PROGRAM: Final = Path(sys.executable).with_name("delaystore")


@dataclass(frozen=True)
class Request:
    """A command, or a module, and the streams that it has."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    ignores_interrupts: bool
    streams: list[int]
    module: str = "delaystore.cli"

    @property
    def program(self) -> list[str]:
        """What a process of its own would run."""
        return [sys.executable, "-m", self.module, *self.arguments]


class Forks:
    """The forks at work, each with a process descriptor and the connection of who asked.

    `folder`: goes with whoever asks.
    """

    def __init__(self, listener: socket.socket, folder: Path) -> None:
        self._folder = folder
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._asked)
        self._selector.register(sys.stdin, selectors.EVENT_READ, self._end)
        self._listener = listener
        self._pids: set[int] = set()

    def serve(self) -> Request:
        """Serve for ever; it returns in forks, each with its command."""
        while True:
            for key, _ in self._selector.select():
                with suppress(KeyError):  # it was unregistered meanwhile
                    self._selector.get_key(key.fileobj)
                    if request := key.data():
                        return request

    def _asked(self) -> Request | None:
        connection, _ = self._listener.accept()
        asked, streams, _, _ = socket.recv_fds(connection, LARGEST, 3)
        if not asked:
            connection.close()
            return None
        pid = os.fork()
        if pid == 0:
            self._let_go(connection)
            return Request(**json.loads(asked), streams=streams)
        for stream in streams:
            os.close(stream)
        self._pids.add(pid)
        connection.send(str(pid).encode())
        process = os.pidfd_open(pid)
        self._selector.register(process, selectors.EVENT_READ, lambda: self._ended(pid, process, connection))
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._told(pid, connection))
        return None

    def _let_go(self, connection: socket.socket) -> None:
        """In a fork: what is open here is no business of its."""
        connection.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            elif isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def _told(self, pid: int, connection: socket.socket) -> None:
        """A signal to pass on; or who asked is gone, as if killed."""
        number = connection.recv(1)
        os.kill(pid, number[0] if number else signal.SIGKILL)
        if not number:
            self._selector.unregister(connection)

    def _ended(self, pid: int, process: int, connection: socket.socket) -> None:
        _, status = os.waitpid(pid, 0)
        self._pids.remove(pid)
        self._selector.unregister(process)
        os.close(process)
        with suppress(KeyError):
            self._selector.unregister(connection)
        with suppress(OSError):
            connection.send(str(status).encode())
        connection.close()

    def _end(self) -> None:
        """Whoever would ask is gone: so are the forks."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self._folder)
        os._exit(0)


def imported_by(commands: Sequence[Sequence[str]]) -> Sequence[str]:
    """The modules that these commands import, as a fork tells that runs them."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        for arguments in commands:
            with suppress(SystemExit):
                run(arguments)
        os.write(writing, "\n".join(sys.modules).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as told:
        names = told.read().split("\n")
    os.wait()
    return names


def preload(folder: Path) -> None:
    """Import what commands will need; `folder` is for a store of nobody's."""
    url = f"sqlite:///{folder / 'nothing.db'}"
    store = ("--store", url, "--endpoint", "nothing")
    for name in (*DRIVERS, *imported_by([("setup", *store), ("dispatch", "--once", "--transport", url, *store)])):
        with suppress(ImportError):
            importlib.import_module(name)
    for url in ("postgresql+psycopg://", "mariadb+pymysql://", "sqlite://"):
        create_engine(url).dispose()
    gc.collect()
    gc.freeze()


def become(request: Request, ours: str) -> None:
    """Be the process that was asked for; `ours`: the folder that is no part of its PATH."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    os.environ["PATH"] = os.pathsep.join(each for each in os.get_exec_path() if each != ours)
    time.tzset()
    if brings_modules(os.environ.get("PYTHONPATH", "")):
        os.execv(sys.executable, request.program)
    sys.argv = [str(PROGRAM), *request.arguments]
    sys.stdin, sys.stdout, sys.stderr = stream_of(0, "r"), stream_of(1, "w"), stream_of(2, "w")
    signal.signal(signal.SIGINT, signal.SIG_IGN if request.ignores_interrupts else signal.default_int_handler)


def brings_modules(paths: str) -> bool:
    """Whether PYTHONPATH leads to other modules than ours does."""
    return any(path and path not in sys.path for path in paths.split(os.pathsep))


def stream_of(number: int, mode: str) -> TextIO:
    """A standard stream, as Python opens it at its start."""
    errors = "backslashreplace" if number == sys.__stderr__.fileno() else sys.__stdout__.errors
    return open(number, mode, encoding=sys.__stdout__.encoding, errors=errors, closefd=False)


def main(folder: Path) -> None:
    """Listen at `folder`/socket, and say so in a line; in a fork, run its command."""
    preload(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        os.write(1, b"ready\n")
        request = Forks(listener, folder).serve()
    become(request, str(folder))
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
