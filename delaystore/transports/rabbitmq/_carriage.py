"""The channels of one connection, and the batches they carry.

Everything here runs in the owner thread.
"""

import time
from collections.abc import Callable, Collection
from typing import Any, Final

from pika import exceptions

from delaystore.transports.rabbitmq._in_flight import Closure, InFlightBatch
from delaystore.transports.rabbitmq.channel import ConfirmChannel
from delaystore.transports.rabbitmq.pika_errors import reason_of

_IDLE_CHANNELS: Final = 8
PATIENCE: Final = 60.0
"""Seconds without any answer after which a batch is given up that nobody waits for, counted while all of it has left
this machine and the broker has no alarm. A queue whose leader was frozen, or moved, may answer on fresh channels for
minutes before it does on an old one; after that, a second copy is likelier to arrive than an answer."""
MOST_LEFT: Final = 64
"""Batches that nobody waits for, at most; the oldest is given up for one more."""


class Carriage:
    """A channel for each batch, kept for the next one. `on_end` is called when a batch has ended."""

    def __init__(self, connection: Any, on_end: Callable[[InFlightBatch], None]) -> None:
        self._connection = connection
        self._on_end = on_end
        self._carrying: dict[InFlightBatch, ConfirmChannel] = {}
        self._left: dict[InFlightBatch, None] = {}
        """Those that nobody waits for, the oldest first."""
        self._idle: list[ConfirmChannel] = []

    @property
    def batches(self) -> Collection[InFlightBatch]:
        """What is being carried."""
        return self._carrying.keys()

    def carry(self, batch: InFlightBatch) -> None:
        """Publish `batch` on a channel of its own. Raises pika's NoFreeChannels."""
        channel = self._idle.pop() if self._idle else ConfirmChannel(self._connection, self._freed, self._gone)
        self._carrying[batch] = channel
        channel.carry(batch)

    def leave(self, batch: InFlightBatch) -> None:
        """Let `batch` go on without its sender, and fresh channels take what comes after it."""
        channel = self._carrying.get(batch)
        if channel is None:
            return
        batch.leave()
        if channel.unused and time.monotonic() - channel.made_at < PATIENCE:
            self._take_off(channel)
            self._idle.append(channel)
            batch.end()
            return
        self._wear(channel)
        if batch.complete:
            self._drop(batch, None)
            return
        self._left[batch] = None
        if len(self._left) > MOST_LEFT:
            self._drop(next(iter(self._left)), Closure("given up for newer ones"))

    def go_on(self, gone: int, *, alarm: bool) -> None:
        """Publish what had no room; give up what nobody waits for any more, and has had no answer for long.

        `gone`: bytes of the connection that have left this machine. `alarm`: the broker says that it reads nothing.
        """
        now = time.monotonic()
        for batch, channel in list(self._carrying.items()):
            if not batch.left:
                channel.pump()
            elif alarm or gone < batch.reaches:
                batch.answerable_at = now
            elif now - max(batch.heard_at, batch.answerable_at) > PATIENCE:
                self._drop(batch, Closure(f"no answer within {PATIENCE:g} s"))

    def _wear(self, channel: ConfirmChannel) -> None:
        """Let nothing more be published on `channel`, nor on those that are idle: they may know an old leader.

        Those that have published nothing know none. Where a broker takes longer to open one than a batch waits, it is
        there for the next batch.
        """
        channel.worn = True
        idle, self._idle = self._idle, []
        for each in idle:
            if each.unused:
                self._idle.append(each)
            else:
                each.discard()

    def _freed(self, channel: ConfirmChannel) -> None:
        self._take_off(channel)
        if channel.worn:
            self._wear(channel)
        if channel.worn or len(self._idle) >= _IDLE_CHANNELS:
            channel.discard()
        else:
            self._idle.append(channel)

    def _gone(self, channel: ConfirmChannel, error: Exception | None) -> None:
        if channel in self._idle:
            self._idle.remove(channel)
        if isinstance(error, exceptions.ChannelClosedByBroker):
            batch = self._take_off(channel)
            if batch is not None:
                batch.end(Closure(reason_of(error), error.reply_code, by_message=True, own=True))
        # otherwise the connection is lost, which ends all batches, or the channel was discarded

    def _drop(self, batch: InFlightBatch, closure: Closure | None) -> None:
        """End `batch`, and close its channel; nobody waits for the broker's answer to that, which may take a minute."""
        channel = self._carrying[batch]
        self._take_off(channel)
        channel.discard()
        batch.end(closure)

    def _take_off(self, channel: ConfirmChannel) -> InFlightBatch | None:
        """Take the batch off `channel`; None: it had none."""
        batch, channel.batch = channel.batch, None
        if batch is not None:
            del self._carrying[batch]
            self._left.pop(batch, None)
            self._on_end(batch)
        return batch
