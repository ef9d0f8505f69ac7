"""The thread that owns a connection to the broker, and tells a silent broker from silent destinations."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pika import exceptions
from pika.adapters.select_connection import IOLoop

from delaystore.transports.rabbitmq.channels import AbandonedBatch, ChannelPool, Closure, InFlightBatch
from delaystore.transports.rabbitmq.connector import Connector
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.pika_internals import SilenceError, drop_socket, end_stream, unsent

QUIET: Final = 1.0
"""Seconds without an answer after which the broker is asked for a sign of life."""
DOUBT: Final = 2.0
"""Seconds without a sign of life after which the broker counts as silent."""
SILENCE_SECONDS: Final = 10.0
"""Seconds without a sign of life after which its connection is given up."""
_BACKLOG: Final = 4096
"""Bytes yet to leave from which on their leaving is progress: fewer are a heartbeat, or the question itself."""


class LivenessWatch:
    """Watches one connection: a round trip on a channel of its own tells whether the broker lives.

    Answers to a batch show that too, and heartbeats do not: a broker sends them even if it reads nothing. Bytes that
    leave the machine are progress. `changed` is called when the broker has given a sign of life.
    """

    def __init__(self, connection: Any, changed: Callable[[], None]) -> None:
        self._connection = connection
        self._changed = changed
        self._signed_at = time.monotonic()
        """When the broker last gave a sign of life."""
        self._moved_at = 0.0
        """When bytes were last seen to have left."""
        self.gone = 0
        """Bytes that had left at the last look."""
        self._backlog = 0
        """Bytes that had not, then."""
        self._asked_at: float | None = None
        """When the broker was asked, and has not answered yet."""
        self._doubted = False
        """Whether a sender takes it to be silent until it answers."""

    @property
    def awaiting(self) -> bool:
        """Whether the broker was asked, and has not answered yet."""
        return self._asked_at is not None

    @property
    def silent(self) -> bool:
        """Whether the broker gives no sign of life."""
        return self._doubted or self._silence() >= DOUBT

    @property
    def dead(self) -> SilenceError | None:
        """Why its connection is worth nothing: it has given none for long. None: it may be worth something."""
        return SilenceError(f"no answer within {SILENCE_SECONDS:g} s") if self._silence() >= SILENCE_SECONDS else None

    @property
    def moving(self) -> bool:
        """Whether bytes are still leaving."""
        self._look()
        return self._backlog >= _BACKLOG and time.monotonic() - self._moved_at < QUIET

    def lives_since(self, moment: float) -> bool:
        """Whether the broker gave a sign of life a moment ago, and after `moment` (of time.monotonic)."""
        return self._signed_at > moment and time.monotonic() - self._signed_at < DOUBT

    def observe(self, batches: Collection[InFlightBatch], *, alarm: bool) -> None:
        """Take notice of the answers to `batches`, which are in flight; ask for a sign of life if there are none.

        A batch hears news once the broker lives, and answers no more of it. `alarm`: the broker says itself that it
        reads nothing.
        """
        self._look()
        now = time.monotonic()
        for batch in batches:
            if batch.heard_at > batch.began_at:  # otherwise it has heard nothing, and has only begun
                self._sign(batch.heard_at)
            idle_since = max(batch.heard_at, self._moved_at)
            if batch.partly_answered and now - idle_since >= QUIET and self._signed_at > idle_since:
                batch.news.set()
        first = min((batch.began_at for batch in batches), default=now)
        if alarm and self._asked_at is not None:
            self._asked_at = now
        elif not alarm and now - max(self._signed_at, self._moved_at, first) >= QUIET:
            self.ask_for_sign()

    def doubt(self) -> None:
        """Take the broker to be silent until it gives a sign of life, and ask for one."""
        self._doubted = True
        self.ask_for_sign()

    def ask_for_sign(self) -> None:
        """Ask for a sign of life, unless the answer to an earlier question is awaited. Raises pika's NoFreeChannels."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._connection.channel(on_open_callback=self._answered)

    def _answered(self, channel: Any) -> None:
        channel.close()
        self._asked_at = None
        self._sign(time.monotonic())
        self._changed()

    def _sign(self, at: float) -> None:
        if at > self._signed_at:
            self._signed_at = at
            self._doubted = False

    def _silence(self) -> float:
        """Seconds since the broker was asked, without a sign of life or bytes that left."""
        if self._asked_at is None:
            return 0.0
        return time.monotonic() - max(self._asked_at, self._signed_at, self._moved_at)

    def _look(self) -> None:
        before, self._backlog = self._backlog, unsent(self._connection)
        gone = self._connection.bytes_sent - self._backlog
        if gone > self.gone and before >= _BACKLOG:
            self._moved_at = time.monotonic()
        self.gone = gone


THREAD_NAME: Final = "delaystore-rabbitmq"
_CLOSE_SECONDS: Final = 2.0
"""Seconds that closing waits for the broker's answer; a broker with an alarm gives none."""
_MESSAGE_FAULTS: Final = frozenset({311, 403, 404, 405, 406, 501, 502, 503, 504, 505, 506, 540, 541})
"""Reply codes with which a broker closes the connection because of the frames that it got (AMQP 0-9-1, 1.2)."""
_CONNECTING: Final = "connecting"
_TICK: Final = 0.25
"""Seconds between two checks of batches in flight."""
_SIGN_OF_LIFE: Final = 1.0
"""Seconds that `leave` waits for the broker to show that it still answers."""

log = logging.getLogger(__name__)


class ConnectionOwner:
    """One connection, re-established as often as it is lost, in a thread of its own.

    The thread starts at construction and ends with `close`; then a new owner takes its place. Batches handed over with
    `publish` always end: answered, closed by a message, or with the connection.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._changed = threading.Condition()
        self._obstacle: str | None = _CONNECTING
        self._batches: set[InFlightBatch] = set()
        self._closing = False
        self._loop = IOLoop()
        self._connector = Connector(
            broker,
            self._loop,
            on_open=self._opened,
            on_failed=self._failed,
            on_close=self._closed,
        )
        self._pool: ChannelPool | None = None
        """The channels of the connection; None: it is not open."""
        self._watch: LivenessWatch | None = None
        self._ticking = False
        self._silence = f"RabbitMQ at {broker.label} does not answer"
        self._alarm: str | None = None
        self._logged = False
        """Whether the log knows of this outage."""
        self._thread = threading.Thread(target=self._run, name=f"{THREAD_NAME} {broker.label}", daemon=True)
        self._thread.start()

    # ---- for any thread

    @property
    def alive(self) -> bool:
        """Whether the thread runs and is not closing."""
        return self._thread.is_alive() and not self._closing

    @property
    def obstacle(self) -> str | None:
        """Why nothing can be sent now; None: it can."""
        return self._obstacle

    def wait_ready(self, deadline: float) -> str | None:
        """Wait until messages can be sent; at `deadline` (of time.monotonic) the obstacle that remains, else None."""
        with self._changed:
            self._changed.wait_for(lambda: self._obstacle is None or self._closing, deadline - time.monotonic())
            return self._obstacle

    def publish(self, batch: InFlightBatch) -> None:
        """Have `batch` published; it ends at once if there is no connection."""
        # Checked and added within the lock under which `_lose` takes all batches: a batch that came in between would
        # never end, and its sender would wait for ever.
        with self._changed:
            if not self.alive:
                batch.end(Closure("the transport was closed"))
                return
            self._batches.add(batch)
        self._loop.add_callback_threadsafe(lambda: self._carry(batch))

    def leave(self, batch: InFlightBatch) -> AbandonedBatch:
        """Wait for `batch` no longer. Messages on the wire go on, and may be answered later; the rest is not sent.

        Where the broker has not just shown that it lives, `obstacle` says that it is silent until it does. This waits a
        moment for that, so that the caller can tell an outage from destinations that do not answer.
        """
        # The two waits are bounded: the owner thread may be busy with a large write, and a broker that is silent gives
        # no sign. Waiting releases the lock, so that the owner thread can report.
        abandoned = AbandonedBatch(batch)
        with self._changed:
            if self.alive:
                self._loop.add_callback_threadsafe(lambda: self._leave(abandoned))
            self._changed.wait_for(lambda: abandoned.seen or self._closing, _CLOSE_SECONDS)
            self._changed.wait_for(lambda: self._obstacle != self._silence or self._closing, _SIGN_OF_LIFE)
            abandoned.obstacle = self._obstacle
        return abandoned

    def abandon(self, batch: InFlightBatch) -> None:
        """`leave`, for a sender that was interrupted: it waits for nothing, and asks nothing."""
        if self.alive:
            self._loop.add_callback_threadsafe(lambda: self._leave(AbandonedBatch(batch)))

    def close(self) -> None:
        """End the connection and the thread; batches in flight end unconfirmed."""
        with self._changed:
            first, self._closing = not self._closing, True
            self._changed.notify_all()
        if first:
            self._loop.add_callback_threadsafe(self._shut)
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * _CLOSE_SECONDS)

    def forget_after_fork(self) -> None:
        """In a forked child, where the thread does not run: give up the socket, which the parent uses on."""
        self._closing = True
        drop_socket(self._connection)

    # ---- in the owner thread

    def _run(self) -> None:
        try:
            with quiet_pika():
                self._connector.connect()
                self._loop.start()
        except Exception:
            if self._closing:  # pika objects to being closed in the middle of a handshake
                log.debug("cannot close the connection to RabbitMQ at %s cleanly", self._broker.label, exc_info=True)
            else:
                log.exception("internal error in the connection to RabbitMQ at %s; reconnecting", self._broker.label)
        finally:
            with self._changed:
                self._closing = True
            drop_socket(self._connection)
            self._lose(Closure("the transport was closed"), "closed")
            self._loop.close()

    @property
    def _connection(self) -> Any:
        """The connection, open or being opened; None: there is none."""
        return self._connector.connection

    @property
    def _node(self) -> str:
        """The node that is connected to, or was, for people to read."""
        return self._broker.label if self._connector.node is None else self._connector.node.label

    def _opened(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._blocked)
        connection.add_on_connection_unblocked_callback(self._unblocked)
        self._pool = ChannelPool(connection, self._ended)
        self._watch = LivenessWatch(connection, self._report)
        self._logged = False
        self._silence = f"RabbitMQ at {self._node} does not answer"
        log.info("connected to RabbitMQ at %s", self._node)
        self._report()

    def _blocked(self, _connection: Any, frame: Any) -> None:
        self._alarm = f"RabbitMQ at {self._node} blocks publishers: {frame.method.reason}"
        log.warning("%s", self._alarm)
        self._report()

    def _unblocked(self, _connection: Any, _frame: Any) -> None:
        self._alarm = None
        log.info("RabbitMQ at %s accepts messages again", self._node)
        self._report()

    def _failed(self, reason: str) -> None:
        if not self._logged and not self._closing:
            log.warning("%s; trying again", reason)
        self._logged = True
        self._lose(Closure(reason), reason)
        if self._closing:
            self._loop.stop()

    def _closed(self, _connection: Any, error: BaseException) -> None:
        code = error.reply_code if isinstance(error, exceptions.ConnectionClosedByBroker) else 0
        why = reason_of(error)
        reason = f"the connection to RabbitMQ at {self._node} was lost: {why}"
        if not self._closing:
            log.warning("%s; reconnecting", reason)
        self._logged = True
        by_message = code in _MESSAGE_FAULTS
        self._lose(Closure(why if by_message else reason, code, by_message=by_message), reason)
        if self._closing:
            self._loop.stop()
        else:
            self._connector.connect(at_once=by_message)

    def _lose(self, closure: Closure, obstacle: str) -> None:
        """End all batches with `closure`."""
        self._alarm = None
        # Channels and their confirms are gone with the connection. Whether their messages arrived will never be known
        # here, so all batches end, also those whose senders have left: the messages are sent again.
        self._pool = self._watch = None
        with self._changed:
            self._obstacle = obstacle
            batches, self._batches = self._batches, set()
            self._changed.notify_all()
        for batch in batches:
            batch.end(closure)

    def _report(self) -> None:
        """Update `obstacle` while the connection is open: an alarm, or silence.

        As long as the broker is silent nothing more is written to it: bytes in the socket's buffer may still arrive.
        """
        if self._watch is None:
            return
        obstacle = self._alarm or (self._silence if self._watch.silent else None)
        with self._changed:
            self._obstacle = obstacle
            self._changed.notify_all()

    def _carry(self, batch: InFlightBatch) -> None:
        if batch not in self._batches:
            return
        if self._pool is None or not self._connection.is_open:
            self._ended(batch)
            batch.end(Closure(self._obstacle or "no connection"))
            return
        with self._channels_sufficing():
            self._pool.carry(batch)
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(_TICK, self._tick)

    def _ended(self, batch: InFlightBatch) -> None:
        with self._changed:
            self._batches.discard(batch)
            self._changed.notify_all()

    def _tick(self) -> None:
        """Check batches in flight, as long as there are any."""
        pool, watch = self._pool, self._watch
        self._ticking = False
        if pool is None or watch is None or not self._connection.is_open:
            return
        with self._channels_sufficing():
            pool.go_on(watch.gone, alarm=self._alarm is not None)
            if pool.batches:
                watch.observe(pool.batches, alarm=self._alarm is not None)
        self._report()
        dead = watch.dead
        # A broker with an alarm says itself that it reads nothing: its silence is expected, and the connection stays.
        if dead is not None and self._alarm is None:
            end_stream(self._connection, dead)
        elif pool.batches or watch.awaiting:
            self._ticking = True
            self._loop.call_later(_TICK, self._tick)

    def _leave(self, abandoned: "AbandonedBatch") -> None:
        batch = abandoned.batch
        pool, watch = self._pool, self._watch
        if pool is not None and watch is not None and self._connection.is_open and not batch.ended:
            with self._channels_sufficing():
                watch.observe(pool.batches, alarm=self._alarm is not None)
                abandoned.moving = watch.moving
                if not abandoned.moving and not watch.lives_since(batch.began_at):
                    watch.doubt()
                pool.leave(batch)
            self._report()
        with self._changed:
            abandoned.seen = True
            self._changed.notify_all()

    @contextmanager
    def _channels_sufficing(self) -> Iterator[None]:
        """End the connection if all of its channels are taken by batches that the broker does not answer."""
        try:
            yield
        except exceptions.NoFreeChannels:
            end_stream(self._connection, SilenceError("all channels wait for answers"))

    def _shut(self) -> None:
        self._connector.stop()
        connection = self._connection
        if connection is None or connection.is_closed:
            self._loop.stop()
            return
        if not connection.is_closing:
            connection.close()
        self._loop.call_later(_CLOSE_SECONDS, self._loop.stop)
