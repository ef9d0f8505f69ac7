"""The process: forked children, listening sockets, and synchronous code on an event loop."""

import asyncio
import errno
import getpass
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Container, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from typing_extensions import override

from delaystore.errors import InvalidMessageError

logger = logging.getLogger("delaystore")
Thing = TypeVar("Thing")
LONGEST_HOLD: Final = 10.0
"""Seconds that a fork waits at most."""
_renewals: Final[WeakKeyDictionary[Any, Callable[[Any], object]]] = WeakKeyDictionary()


def renew_in_children(thing: Thing, renew: Callable[[Thing], object]) -> None:
    """Have an object renewed in every child that is forked while it lives, before anything else runs there.

    Args:
        thing: The object.
        renew: Called with it. It must not refer to the object itself, which would then live forever.

    """
    _renewals[thing] = renew


class _ForkHolds:
    """The objects that hold forks off, and whether a fork is going on."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start afresh, at first and in a forked child: the lock is taken there, by a thread that it does not have."""
        self._changed = threading.Condition()
        self._holders: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        """The threads, by the object that they use."""
        self._forking = False
        self._cut = False

    def hold_off(self, holder: Any) -> None:
        """Hold forks off; waits for one that has begun to wait, unless that waits for this thread already."""
        me = threading.get_ident()
        with self._changed:
            if self._forking and me not in self._holders.values():
                self._changed.wait_for(lambda: not self._forking, LONGEST_HOLD)
            self._holders[holder] = me

    def let_go(self, holder: Any) -> None:
        """Allow forks again, as far as `holder` is concerned."""
        with self._changed:
            self._holders.pop(holder, None)
            if self._forking:
                self._changed.notify_all()

    def before(self) -> None:
        """Wait for the holders of other threads; none begins to hold until `after`."""
        me = threading.get_ident()
        self._changed.acquire()
        self._forking = True
        end = time.monotonic() + LONGEST_HOLD
        while any(thread != me for thread in self._holders.values()) and (left := end - time.monotonic()) > 0:
            self._changed.wait(left)
        self._cut = bool(self._holders)

    def after(self) -> None:
        """In the parent."""
        cut, self._forking = self._cut, False
        self._changed.notify_all()
        self._changed.release()
        if cut:
            logger.warning(
                "forked in the middle of a write to SQLite, which did not end in %g s or is the forking thread's own; "
                "the child cannot write to that database: fork outside of transactions",
                LONGEST_HOLD,
            )


_holds: Final = _ForkHolds()
hold_off: Final = _holds.hold_off
"""Lets no other thread fork until `let_go` gets the same holder, which must be hashable, or for LONGEST_HOLD."""
let_go: Final = _holds.let_go
"""Undoes `hold_off`; may be called twice."""


def _after_in_child() -> None:
    _holds.renew()
    for thing, renew in list(_renewals.items()):
        renew(thing)


os.register_at_fork(before=_holds.before, after_in_parent=_holds.after, after_in_child=_after_in_child)


FEW: Final = 32
"""Connections of a server for probes or metrics."""
_MANY: Final = 1_000
_KEPT: Final = 200 + 2 * FEW + 56
"""Descriptors that a page's connections leave: 200 for database and broker, others for small servers and files."""
_BACKLOG: Final = 128
_ENDING: Final = 8
"""Connections beyond a server's limit that are accepted while older ones end."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE: Final = 0.1
"""Seconds between two attempts to accept a connection for which there is no descriptor."""
_SELDOM: Final = 60.0
"""Seconds between two log lines."""


def user_at_host() -> str:
    """`user@host`, of this process."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in a container
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def actor_name(by: str | None) -> str | None:
    """`by`, the name under which a change is noted, or None. Raises InvalidMessageError if it is empty or no text."""
    if by is not None and (not isinstance(by, str) or not by.strip()):
        raise InvalidMessageError(f"who acts? {by!r} is no name")
    return by


def most_connections() -> int:
    """The most connections of a page, by the limit on this process's file descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY if soft == resource.RLIM_INFINITY else max(FEW, min(_MANY, soft - _KEPT))


class Listener(socket.socket):
    """Listens at `host` and `port`; each connection beyond `most` ends the oldest one that `busy` does not name.

    If there is none, the new connection is closed at once.
    `accept`, which the servers of asyncio and of socketserver call, never raises for a lack of descriptors: they would
    log that, or try again, without a pause.

    Args:
        host: A name or an address.
        port: 0: any that is free.
        most: Maximum number of open connections.

    Raises:
        socket.gaierror, UnicodeError: The host has no address.
        OSError: The address cannot be used.

    """

    def __init__(self, host: str, port: int, *, most: int = FEW) -> None:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        super().__init__(family, kind, protocol)
        self._most = most
        self.busy: Callable[[], Container[int]] = tuple
        """Returns the descriptors of connections that are in a request."""
        self._open: list[socket.socket] = []
        self._ending: list[socket.socket] = []
        self._ended = 0
        self._next_line = 0.0
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address)
            self.listen(_BACKLOG)
        except BaseException:
            self.close()
            raise

    @override
    def accept(self) -> tuple[socket.socket, Any]:
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._report(f"cannot accept connections: {error.strerror}")
            time.sleep(_PAUSE)  # the connection still waits, and its server asks again at once
            raise ConnectionAbortedError(errno.ECONNABORTED, error.strerror) from None
        self._open = [each for each in self._open if each.fileno() >= 0]
        self._ending = [each for each in self._ending if each.fileno() >= 0]
        if len(self._open) >= self._most:
            self._ended += 1
            self._report(f"has {self._most} open connections, its limit: ended {self._ended} connections")
            if not self._end_oldest():
                connection.close()
                raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections")
        self._open.append(connection)
        return connection, address

    def _end_oldest(self) -> bool:
        """End the connection that has been open for longest without a request. False: there is none, or no room."""
        busy = self.busy()
        idle = next((each for each in self._open if each.fileno() not in busy), None)
        if idle is None or len(self._ending) >= _ENDING:
            return False
        with suppress(OSError):  # it has just ended
            idle.shutdown(socket.SHUT_RDWR)  # its server closes it
        self._open.remove(idle)
        self._ending.append(idle)
        return True

    def _report(self, trouble: str) -> None:
        """Log `trouble`, once a minute at most."""
        now = time.monotonic()
        if now >= self._next_line:
            host, port = self.getsockname()[:2]
            logger.warning("The server at %s port %d %s. The rest of the process is not affected.", host, port, trouble)
            self._next_line = now + _SELDOM
            self._ended = 0


ResultT = TypeVar("ResultT")
_may_pause: Final[ContextVar[bool]] = ContextVar("delaystore_may_pause", default=True)
AT_ONCE: Final = 200
"""After this number of items, such as rows, the loop may do something else: a few milliseconds."""


def on_a_loop() -> bool:
    """Whether the caller runs in one of SQLAlchemy's greenlets, so that `awaited` works."""
    greenlets = sys.modules.get("greenlet")
    return greenlets is not None and hasattr(greenlets.getcurrent(), "__sqlalchemy_greenlet_provider__")


def awaited(awaitable: Awaitable[ResultT]) -> ResultT:
    """Await `awaitable`; the loop goes on meanwhile. Only where `on_a_loop()`."""
    from sqlalchemy.util import await_only

    return await_only(awaitable)


class WouldBlockError(Exception):
    """A call `without_pauses` would sleep; nothing of it is done."""


@contextmanager
def without_pauses() -> Iterator[None]:
    """A block on a loop, in no greenlet, in which `pause` raises WouldBlockError."""
    token = _may_pause.set(False)
    try:
        yield
    finally:
        _may_pause.reset(token)


def pause(seconds: float) -> None:
    """Sleep; on a loop, only the caller does."""
    if on_a_loop():
        awaited(asyncio.sleep(seconds))
    elif not _may_pause.get():
        raise WouldBlockError
    else:
        time.sleep(seconds)


def yield_to_loop(number: int) -> None:
    """Called for each `number` of many: lets the loop do something else now and then; elsewhere it does nothing."""
    if number % AT_ONCE == 0 and on_a_loop():
        awaited(asyncio.sleep(0))


def off_the_loop(name: str, work: Callable[[], ResultT]) -> ResultT:
    """Call `work`, which blocks: on a loop in a thread called `name`."""
    return awaited(in_thread(name, work)) if on_a_loop() else work()


class Turns:
    """Lets callers go on one by one, each in a turn of its loop, where each keeps the loop busy for milliseconds."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    def wait(self) -> None:
        """Return when it is the caller's turn; only where `on_a_loop()`."""
        awaited(self._next())

    async def _next(self) -> None:
        async with self._lock:
            await asyncio.sleep(0)


async def in_thread(name: str, work: Callable[[], ResultT]) -> ResultT:
    """Call a function in a daemon thread of its own, and await it.

    Not in the loop's executor: its threads are few, and the end of `asyncio.run` waits for them, however long they
    hang.

    Args:
        name: The thread's name.
        work: The function. It goes on if the await is cancelled.

    Returns:
        Its result.

    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ResultT] = loop.create_future()

    def report(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not done.done():
            set_outcome(outcome)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], Any] = done.set_result, work()
        except BaseException as error:
            outcome = done.set_exception, error
        try:
            loop.call_soon_threadsafe(report, *outcome)
        except RuntimeError:  # the loop has been closed: no caller waits any more
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
