"""The channels of a connection, each in confirm mode, and the batch of messages that each carries.

Everything here runs in the owner thread, except where it says otherwise.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pika import exceptions, spec
from typing_extensions import override

from delaystore.errors import UnsupportedMessageError
from delaystore.text import Address
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind, PendingConfirm
from delaystore.transports.rabbitmq.pika_errors import reason_of
from delaystore.transports.rabbitmq.pika_internals import unsent_by_us, write_frames
from delaystore.transports.rabbitmq.publication import (
    Publishable,
    body_frames,
    body_pieces,
    publish_method,
    requirement,
)

_ANSWERED: Final = -1


@dataclass(frozen=True, slots=True)
class Closure:
    """Why an in-flight batch ended early.

    `by_message`: a message closed the channel or the connection; else it is an outage.
    `own`: the batch's own channel was closed, so one of its messages is the cause; a connection is shared.
    `code`: the broker's reply code; 0: it sent none.
    """

    reason: str
    code: int = 0
    by_message: bool = False
    own: bool = False


class InFlightBatch:
    """Publications on their way through one channel, which carries nothing else meanwhile.

    The owner thread alone changes it; the sender reads it once `news` is set, or after it has left.
    `outcomes`: one for each of `publications`; None: no answer.
    """

    def __init__(self, publications: Sequence[Publishable]) -> None:
        self.publications = publications
        """Empty once its sender has left: messages on the wire need no bodies here."""
        self.outcomes: list[Outcome | None] = [None] * len(publications)
        self.doubtful: set[int] = set()
        """Positions of publications that look alike: some came back, and it is unknown which."""
        self.closure: Closure | None = None
        self.news = threading.Event()
        """Set when the sender need wait no longer: all are answered, or the rest is silent."""
        self.ended = False
        self.left = False
        """Whether its sender waits no more; messages on the wire go on."""
        self.next = 0
        """The first position that is not yet on the wire."""
        self.total = len(publications)
        """How many are to be sent."""
        self.unconfirmed_bytes = 0
        self.reaches = 0
        """How many bytes of the connection there are up to its last one on the wire."""
        self.began_at = self.heard_at = time.monotonic()
        """When it was made; when the broker last answered for any of it, or at first the same."""
        self.answerable_at = self.began_at
        """When it was last known not to have reached a broker that reads; at first when it was made."""
        self._settled = 0
        self._sent: list[int] = []
        """Positions in the order of their delivery tags."""
        self._sizes: list[int] = []
        self._lowest = 0
        """Every tag below this one is settled."""
        self._returned: dict[int, Outcome] = {}
        self._positions: dict[tuple[str | None, str, str], list[int]] | None = None

    @property
    def unconfirmed(self) -> int:
        """How many publications on the wire have no answer yet."""
        return self.next - self._settled

    @property
    def complete(self) -> bool:
        """Whether every publication has its outcome."""
        return self._settled == self.total

    @property
    def partly_answered(self) -> bool:
        """Whether some of it has answers, and some has none."""
        return 0 < self._settled < self.total

    def sent(self, size: int) -> None:
        """Count the publication at `next` as on the wire, with the next delivery tag."""
        self._sent.append(self.next)
        self._sizes.append(size)
        self.unconfirmed_bytes += size
        self.next += 1

    def skipped(self, outcome: Outcome) -> None:
        """Settle the publication at `next` without sending it."""
        self.outcomes[self.next] = outcome
        self._settled += 1
        self.next += 1

    def answered(self, index: int, outcome: Outcome, *, multiple: bool) -> None:
        """Settle the publication with the `index`-th delivery tag (from 0); `multiple`: and all before it."""
        self.heard_at = time.monotonic()
        for each in range(self._lowest if multiple else index, index + 1):
            size = self._sizes[each]
            if size == _ANSWERED:
                continue
            self._sizes[each] = _ANSWERED
            self.unconfirmed_bytes -= size
            self._settled += 1
            position = self._sent[each]
            if position not in self.doubtful:
                self.outcomes[position] = self._returned.get(position, outcome)
        if multiple:
            self._lowest = max(self._lowest, index + 1)

    def returned(self, message_id: str | None, address: Address, reason: str) -> None:
        """Note that a publication came back; its confirm follows and settles it.

        A return carries no delivery tag. Where several publications look alike, none is blamed: they are doubtful,
        and to be sent again one at a time.
        """
        # RabbitMQ sends a return before the confirm of the same publication. So it is noted here, and `answered` takes
        # it in place of the confirm. A publication that has an outcome already cannot be meant.
        alike = [
            position
            for position in self._by_looks().get((message_id, *address), [])
            if position < self.next and self.outcomes[position] is None
        ]
        if len(alike) == 1:
            self._returned[alike[0]] = Outcome(OutcomeKind.UNROUTABLE, reason)
        else:
            self.doubtful.update(alike)

    def leave(self) -> None:
        """Its sender waits no more: messages on the wire go on, and the rest is not sent."""
        # Returns can still come, so the index is built while the publications are there. Then they go: a batch that no
        # sender waits for may stay for a minute, and its bodies must not fill the memory meanwhile.
        self._by_looks()
        self.total = self.next
        self.publications = ()
        self.left = True

    def end(self, closure: Closure | None = None) -> None:
        """Set `news`; `closure` says why there may be publications without an outcome."""
        if not self.ended:
            self.closure = closure
            self.ended = True
            self.news.set()

    def _by_looks(self) -> dict[tuple[str | None, str, str], list[int]]:
        """Positions by the fields of a publication that a return has."""
        if self._positions is None:
            self._positions = {}
            for position, publication in enumerate(self.publications):
                key = (publication.message_id, *publication.address)
                self._positions.setdefault(key, []).append(position)
        return self._positions


class BatchPendingConfirm(PendingConfirm):
    """The pending confirm of one publication of a batch whose sender has left."""

    def __init__(self, batch: InFlightBatch, position: int) -> None:
        self._batch = batch
        self._position = position

    @property
    @override
    def arrived(self) -> bool | None:
        ended = self._batch.ended  # read first: an answer may come in between
        outcome = self._batch.outcomes[self._position]
        if outcome is not None:
            return outcome.kind is OutcomeKind.DELIVERED
        return False if ended else None


@dataclass(slots=True)
class AbandonedBatch:
    """A sender waits for a batch no longer, and wants to know how the broker is."""

    batch: InFlightBatch
    seen: bool = False
    """Whether the owner thread knows."""
    moving: bool = False
    """Whether bytes were still leaving."""
    obstacle: str | None = None
    """Why nothing can be sent; None: the broker lives."""


WINDOW: Final = 2000
"""Publishes without an answer, at most."""
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Bytes published without an answer, at most, which bounds a batch's memory; a single message may exceed it."""
_WRITE_BYTES: Final = 128 * 1024
"""Frames are handed to the socket in pieces of about this size."""
_LONG: Final = 1024 * 1024
"""Bytes of a body that is handed to the socket without a copy of it."""
NACKED: Final = Outcome(OutcomeKind.UNAVAILABLE, "nacked by the broker")
"""A queue nacks if it is full and rejects, or if it has lost its leader; the answer does not tell which."""
_METHODS_KEPT: Final = 4096
"""Method frames that a channel keeps, one for each destination; with more destinations it starts over."""

OnEnd = Callable[["ConfirmChannel", Exception | None], None]


class ConfirmChannel:
    """A pika channel in confirm mode, and the batch it carries (None: it is idle).

    `on_idle` is called when the batch has all its answers, `on_closed` with the reason when the channel is closed.
    """

    def __init__(self, connection: Any, on_idle: Callable[["ConfirmChannel"], None], on_closed: OnEnd) -> None:
        self.batch: InFlightBatch | None = None
        self.retired = False
        """Whether it is to carry nothing more: a queue without a leader nacks the first message of a channel, and
        leaves later ones without an answer even when it has one again."""
        self.made_at = time.monotonic()
        """When the broker was asked to open it."""
        self._connection = connection
        self._on_idle = on_idle
        self._on_closed = on_closed
        self._ready = False
        self._methods: dict[Address, bytes] = {}
        self._next_tag = 1
        self._first_tag = 1
        self._pika = connection.channel(on_open_callback=self._select)
        self._pika.add_on_close_callback(self._closed)

    @property
    def unused(self) -> bool:
        """Whether nothing was published on it yet: it may be about to be opened."""
        return self._next_tag == 1

    def carry(self, batch: InFlightBatch) -> None:
        """Publish `batch`; the channel must be idle."""
        assert self.batch is None
        self.batch = batch
        self._first_tag = self._next_tag
        if self._ready:
            self.pump()

    def pump(self) -> None:
        """Publish as much of the batch as the window allows."""
        batch = self.batch
        if batch is None or not self._ready:
            return
        pieces = [] if batch.next else self._requirements(batch)
        size = sum(map(len, pieces))
        while batch.next < batch.total and batch.unconfirmed < WINDOW and batch.unconfirmed_bytes < WINDOW_BYTES:
            start, rest = self._marshal(batch, batch.publications[batch.next])
            pieces.append(start)
            size += len(start)
            if size >= _WRITE_BYTES or rest:
                self._write(batch, [b"".join(pieces), *rest])
                pieces, size = [], 0
                if unsent_by_us(self._connection) >= WINDOW_BYTES:
                    break
        if size:
            self._write(batch, [b"".join(pieces)])
        self._release_if_complete(batch)

    def discard(self) -> bool:
        """Close the channel, and ignore its later answers. False: it is closed already, or about to be."""
        self.batch = None
        if self._pika.is_closed or self._pika.is_closing:
            return False
        self._pika.close()
        return True

    def _select(self, _channel: Any) -> None:
        self._pika.add_on_return_callback(self._on_return)
        self._pika.confirm_delivery(self._on_answer, callback=self._on_selected)

    def _on_selected(self, _frame: Any) -> None:
        self._ready = True
        self.pump()

    def _requirements(self, batch: InFlightBatch) -> list[bytes]:
        """Frames for the parts that the batch needs, each once. They go first: if one is refused, none is published."""
        parts = dict.fromkeys(part for publication in batch.publications for part in publication.requires)
        return [requirement(self._pika.channel_number, part) for part in parts]

    def _marshal(self, batch: InFlightBatch, publication: Publishable) -> tuple[bytes, Sequence[bytes | memoryview]]:
        """The publication's frames, counted as sent: all of them, or their start and the pieces of a long body.

        Empty: it cannot be sent, and is settled.
        """
        number = self._pika.channel_number
        frame_max = self._connection.params.frame_max
        try:
            header = publication.content_header(number)
        except UnsupportedMessageError as error:
            batch.skipped(Outcome(OutcomeKind.REFUSED, str(error)))
            return b"", ()
        if not fits(header, frame_max):
            batch.skipped(Outcome(OutcomeKind.REFUSED, _too_large(len(header), frame_max)))
            return b"", ()
        start, body = self._method(publication) + header, publication.body
        rest: Sequence[bytes | memoryview] = ()
        if len(body) < _LONG:
            start += body_frames(number, body, frame_max)
        else:
            rest = tuple(body_pieces(number, body, frame_max))
        self._next_tag += 1
        batch.sent(len(start) + sum(map(len, rest)))
        return start, rest

    def _method(self, publication: Publishable) -> bytes:
        address = publication.address
        if not publication.mandatory:
            return publish_method(self._pika.channel_number, address, mandatory=False)
        method = self._methods.get(address)
        if method is None:
            if len(self._methods) >= _METHODS_KEPT:
                self._methods.clear()
            method = self._methods[address] = publish_method(self._pika.channel_number, address)
        return method

    def _write(self, batch: InFlightBatch, frames: Sequence[bytes | memoryview]) -> None:
        """Hand marshalled publishes of `batch` to the socket.

        `Channel.basic_publish` would write every frame separately. It also checks that the channel is open, and
        validates types; delivery tags are counted by the user of an asynchronous channel.
        """
        if self._pika.is_open:
            write_frames(self._connection, frames)
            batch.reaches = self._connection.bytes_sent

    def _on_answer(self, frame: Any) -> None:
        batch = self.batch
        if batch is None:
            return
        answer = frame.method
        if isinstance(answer, spec.Basic.Ack):
            outcome = DELIVERED
        else:
            outcome, self.retired = NACKED, True
        # tag 0 with `multiple` means all that is outstanding (AMQP 0-9-1, basic.ack)
        tag = answer.delivery_tag or self._next_tag - 1
        batch.answered(tag - self._first_tag, outcome, multiple=answer.multiple)
        self.pump()

    def _on_return(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        if self.batch is not None:
            reason = f"returned by the broker: {method.reply_text}"
            self.batch.returned(properties.message_id, Address(method.exchange, method.routing_key), reason)

    def _release_if_complete(self, batch: InFlightBatch) -> None:
        if batch.complete:
            self._on_idle(self)
            batch.end()

    def _closed(self, _channel: Any, reason: Exception) -> None:
        self._ready = False
        self._on_closed(self, None if isinstance(reason, exceptions.ChannelClosedByClient) else reason)


def fits(header: bytes, frame_max: int) -> bool:
    """Whether a frame is short enough for the broker, which closes the whole connection for a longer one."""
    return len(header) <= frame_max


def _too_large(size: int, frame_max: int) -> str:
    return f"headers and properties take a frame of {size} bytes; the broker's frame_max is {frame_max}"


_IDLE_CHANNELS: Final = 8
ANSWER_TIMEOUT: Final = 60.0
"""Seconds without any answer after which a batch is given up that no `send` waits for, counted while all of it has left
this machine and the broker has no alarm. A queue whose leader was frozen, or moved, may answer on fresh channels for
minutes before it does on an old one; after that, a second copy is likelier to arrive than an answer."""
MOST_LEFT: Final = 64
"""Batches that no `send` waits for, at most; the oldest is given up for one more."""


class ChannelPool:
    """A channel for each batch, kept for the next one. `on_end` is called when a batch has ended."""

    def __init__(self, connection: Any, on_end: Callable[[InFlightBatch], None]) -> None:
        self._connection = connection
        self._on_end = on_end
        self._carrying: dict[InFlightBatch, ConfirmChannel] = {}
        self.batches: Final[Collection[InFlightBatch]] = self._carrying.keys()
        """The batches that are being carried, at any moment."""
        self._left: dict[InFlightBatch, None] = {}
        """Batches that no `send` waits for, the oldest first."""
        self._idle: list[ConfirmChannel] = []

    def carry(self, batch: InFlightBatch) -> None:
        """Publish `batch` on a channel of its own. Raises pika's NoFreeChannels."""
        channel = self._idle.pop() if self._idle else ConfirmChannel(self._connection, self._freed, self._gone)
        self._carrying[batch] = channel
        channel.carry(batch)

    def leave(self, batch: InFlightBatch) -> None:
        """Let `batch` go on without its sender, and fresh channels take later batches."""
        channel = self._carrying.get(batch)
        if channel is None:
            return
        batch.leave()
        # The broker has not opened this channel yet, which is no fault of a queue: the next batch takes it as it is.
        # Otherwise each batch would ask a slow broker for one more channel.
        if channel.unused and time.monotonic() - channel.made_at < ANSWER_TIMEOUT:
            self._take_off(channel)
            self._idle.append(channel)
            batch.end()
            return
        self._retire_channels(channel)
        if batch.complete:
            self._drop(batch, None)
            return
        self._left[batch] = None
        if len(self._left) > MOST_LEFT:
            self._drop(next(iter(self._left)), Closure("given up for newer ones"))

    def go_on(self, gone: int, *, alarm: bool) -> None:
        """Publish messages that had no room; give up messages that no `send` waits for any more and that have had no
        answer for long.

        `gone`: bytes of the connection that have left this machine. `alarm`: the broker says that it reads nothing.
        """
        now = time.monotonic()
        for batch, channel in list(self._carrying.items()):
            if not batch.left:
                channel.pump()
            elif alarm or gone < batch.reaches:
                batch.answerable_at = now
            elif now - max(batch.heard_at, batch.answerable_at) > ANSWER_TIMEOUT:
                self._drop(batch, Closure(f"no answer within {ANSWER_TIMEOUT:g} s"))

    def _retire_channels(self, channel: ConfirmChannel) -> None:
        """Let nothing more be published on `channel`, or on idle channels: they may know an old leader. Channels
        that have published nothing know none. Where a broker takes longer to open one than a batch waits, it is
        there for the next batch.
        """
        channel.retired = True
        idle, self._idle = self._idle, []
        for each in idle:
            if each.unused:
                self._idle.append(each)
            else:
                each.discard()

    def _freed(self, channel: ConfirmChannel) -> None:
        self._take_off(channel)
        if channel.retired:
            self._retire_channels(channel)
        if channel.retired or len(self._idle) >= _IDLE_CHANNELS:
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
        """End `batch`, and close its channel without waiting for the broker's answer, which may take a minute."""
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
