"""The thread that owns a connection to the broker."""

import logging
import threading
import time
from typing import Any, Final

import pika
from pika import exceptions
from pika.adapters.select_connection import IOLoop

from delaystore.transports.rabbitmq._in_flight import Closure, InFlightBatch
from delaystore.transports.rabbitmq.channel import ConfirmChannel
from delaystore.transports.rabbitmq.connector import Connector
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.punctual import SilenceError

THREAD_NAME: Final = "delaystore-rabbitmq"
_CLOSE_SECONDS: Final = 2.0
"""Seconds that closing waits for the broker's answer; a broker with an alarm gives none."""
_IDLE_CHANNELS: Final = 8
_MESSAGE_FAULTS: Final = frozenset({311, 403, 404, 405, 406, 501, 502, 503, 504, 505, 506, 540, 541})
"""Reply codes with which a broker closes the connection because of what it was sent (AMQP 0-9-1, 1.2)."""
_CONNECTING: Final = "connecting"
SILENCE_SECONDS: Final = 10.0
"""Seconds after which a connection is given up whose broker has not even closed a channel. A queue without a leader
keeps its channel for a minute; on a fresh connection other messages go on."""
_SIGN_OF_LIFE: Final = 1.0
"""Seconds that `abandon` waits for the broker to show that it still answers."""

log = logging.getLogger(__name__)


class Owner:
    """One connection, re-established as often as it is lost, in a thread of its own.

    The thread starts at construction and ends with `close`; then a new owner takes its place. Batches handed over with
    `publish` always end: answered, closed by a message, or with the connection.
    `connection_type`: a kind of SelectConnection.
    """

    def __init__(self, broker: Broker, connection_type: Any = pika.SelectConnection) -> None:
        self._broker = broker
        self._changed = threading.Condition()
        self._obstacle: str | None = _CONNECTING
        self._batches: set[InFlightBatch] = set()
        self._closing = False
        self._loop = IOLoop()
        self._connector = Connector(
            broker,
            self._loop,
            connection_type,
            on_open=self._opened,
            on_failed=self._failed,
            on_close=self._closed,
        )
        self._carrying: dict[InFlightBatch, ConfirmChannel] = {}
        self._idle: list[ConfirmChannel] = []
        self._abandoned: set[InFlightBatch] = set()
        """Batches given up, whose channels are yet to be closed."""
        self._silent: set[ConfirmChannel] = set()
        """Channels given up for want of an answer, whose closing the broker has not confirmed yet."""
        self._silence = f"RabbitMQ at {broker.label} does not answer"
        self._alarm: str | None = None
        self._told = False
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
        with self._changed:
            if not self.alive:
                batch.end(Closure("the transport was closed"))
                return
            self._batches.add(batch)
        self._loop.add_callback_threadsafe(lambda: self._carry(batch))

    def abandon(self, batch: InFlightBatch) -> None:
        """Give `batch` up. Its channel is closed, so that no late answer is taken for another message's.

        Until the broker confirms that, `obstacle` says that it is silent. This waits a moment for the confirmation, so
        that the caller can tell an outage from a single message that gets no answer.
        """
        with self._changed:
            if batch not in self._batches:
                return
            self._batches.remove(batch)
            self._abandoned.add(batch)
            self._obstacle = self._obstacle or self._silence
        self._loop.add_callback_threadsafe(lambda: self._drop(batch))
        with self._changed:
            self._changed.wait_for(lambda: self._obstacle != self._silence or self._closing, _SIGN_OF_LIFE)

    def close(self) -> None:
        """End the connection and the thread; batches in flight end unsettled."""
        with self._changed:
            first, self._closing = not self._closing, True
            self._changed.notify_all()
        if first:
            self._loop.add_callback_threadsafe(self._shut)
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * _CLOSE_SECONDS)

    def disown(self) -> None:
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
                log.debug("closing the connection to RabbitMQ at %s raised", self._broker.label, exc_info=True)
            else:
                log.exception(
                    "the connection to RabbitMQ at %s failed unexpectedly; it starts afresh", self._broker.label
                )
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
        self._told = False
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
        if not self._told and not self._closing:
            log.warning("%s; trying again", reason)
        self._told = True
        self._lose(Closure(reason), reason)
        if self._closing:
            self._loop.stop()

    def _closed(self, _connection: Any, error: BaseException) -> None:
        code = error.reply_code if isinstance(error, exceptions.ConnectionClosedByBroker) else 0
        why = reason_of(error)
        reason = f"the connection to RabbitMQ at {self._node} was lost: {why}"
        if not self._closing:
            log.warning("%s; reconnecting", reason)
        self._told = True
        by_message = code in _MESSAGE_FAULTS
        self._lose(Closure(why if by_message else reason, code, by_message=by_message), reason)
        if self._closing:
            self._loop.stop()
        else:
            self._connector.connect(at_once=by_message)

    def _lose(self, closure: Closure, obstacle: str) -> None:
        """End all batches with `closure`."""
        self._alarm = None
        self._idle.clear()
        self._silent.clear()
        self._carrying.clear()
        with self._changed:
            self._obstacle = obstacle
            batches, self._batches = self._batches, set()
            self._abandoned.clear()
            self._changed.notify_all()
        for batch in batches:
            batch.end(closure)

    def _report(self) -> None:
        """Update `obstacle` while the connection is open: an alarm, or silence.

        As long as the broker is silent nothing more is written to it: what waits in the socket's buffer may still
        arrive.
        """
        with self._changed:
            silent = self._silent or self._abandoned
            self._obstacle = self._alarm or (self._silence if silent else None)
            self._changed.notify_all()

    def _carry(self, batch: InFlightBatch) -> None:
        if batch not in self._batches:
            return
        if self._connection is None or not self._connection.is_open:
            with self._changed:
                self._batches.discard(batch)
            batch.end(Closure(self._obstacle or "no connection"))
            return
        channel = self._idle.pop() if self._idle else ConfirmChannel(self._connection, self._freed, self._channel_gone)
        self._carrying[batch] = channel
        channel.carry(batch)

    def _freed(self, channel: ConfirmChannel) -> None:
        self._take_off(channel)
        if len(self._idle) < _IDLE_CHANNELS:
            self._idle.append(channel)
        else:
            channel.discard()

    def _channel_gone(self, channel: ConfirmChannel, error: Exception | None) -> None:
        if channel in self._idle:
            self._idle.remove(channel)
        if channel in self._silent:
            self._silent.remove(channel)
            if self._connection.is_open:
                self._report()
        elif isinstance(error, exceptions.ChannelClosedByBroker):
            batch = self._take_off(channel)
            if batch is not None:
                batch.end(Closure(reason_of(error), error.reply_code, by_message=True, own=True))
        # otherwise the connection is lost, which ends all batches

    def _take_off(self, channel: ConfirmChannel) -> InFlightBatch | None:
        """Take the batch off `channel`; None: it had none."""
        batch, channel.batch = channel.batch, None
        if batch is not None:
            self._carrying.pop(batch, None)
            with self._changed:
                self._batches.discard(batch)
        return batch

    def _drop(self, batch: InFlightBatch) -> None:
        channel = self._carrying.pop(batch, None)
        if channel is not None and channel.discard():
            self._silent.add(channel)
            self._loop.call_later(SILENCE_SECONDS, lambda: self._give_up(channel))
        with self._changed:
            self._abandoned.discard(batch)
        if self._connection is not None and self._connection.is_open:
            self._report()

    def _give_up(self, channel: ConfirmChannel) -> None:
        """End the connection, as after missed heartbeats, if the broker still has not closed `channel`.

        Under an alarm it reads nothing, on a fresh connection either: so this one waits for the alarm's end.
        """
        if channel not in self._silent:
            return
        if self._alarm is None:
            self._connection._terminate_stream(SilenceError(f"no answer within {SILENCE_SECONDS:g} s"))
        else:
            self._loop.call_later(SILENCE_SECONDS, lambda: self._give_up(channel))

    def _shut(self) -> None:
        self._connector.stop()
        connection = self._connection
        if connection is None or connection.is_closed:
            self._loop.stop()
            return
        if not connection.is_closing:
            connection.close()
        self._loop.call_later(_CLOSE_SECONDS, self._loop.stop)


def drop_socket(connection: Any) -> None:
    """Close the socket of `connection` without telling the broker; pika has no public way."""
    transport = getattr(connection, "_transport", None)
    if transport is not None and transport._sock is not None:
        transport._sock.close()
