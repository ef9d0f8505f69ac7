"""A channel in confirm mode, which carries one in-flight batch at a time.

Everything here runs in the owner thread.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from pika import exceptions, spec

from delaystore.address import Address
from delaystore.errors import UnsupportedMessageError
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind
from delaystore.transports.rabbitmq._in_flight import InFlightBatch
from delaystore.transports.rabbitmq.pika_internals import unsent_by_us, write_frames
from delaystore.transports.rabbitmq.publication import (
    Publishable,
    body_frames,
    body_pieces,
    publish_method,
    requirement,
)

WINDOW: Final = 2000
"""Publishes without an answer, at most."""
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Bytes published without an answer, at most, which bounds a batch's memory; a single message may exceed it."""
_WRITE_BYTES: Final = 128 * 1024
"""Frames are handed to the socket in pieces of about this size."""
_LONG: Final = 1024 * 1024
"""Bytes of a body that is handed to the socket without a copy of it."""
NACKED: Final = Outcome(OutcomeKind.UNREADY, "nacked by the broker")
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
        self.worn = False
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
        while batch.next < batch.total and batch.unsettled < WINDOW and batch.unsettled_bytes < WINDOW_BYTES:
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
        """Close the channel, and ignore what it still answers. False: it is closed already, or about to be."""
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
        """What the batch needs, each once. It goes first: where it is refused, nothing has been published."""
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

        `Channel.basic_publish` would write every frame by itself. What it does beyond that is to check that the
        channel is open, and to validate types; delivery tags are counted by the user of an asynchronous channel.
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
            outcome, self.worn = NACKED, True
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
