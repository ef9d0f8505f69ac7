"""Blocking connections of pika on which no wait is without end.

pika waits as long as the connection is there: for ever, if a broker answers heartbeats and not the request, or answers
with another name than the one that was asked for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pika
from pika import exceptions
from typing_extensions import override

from delaystore.transports.rabbitmq.nodes import Node

ANSWER: Final = 30.0
"""Seconds that a broker has for an answer, unless told otherwise. Declaring a queue may take a busy one some."""


class SilenceError(exceptions.AMQPHeartbeatTimeout):  # type: ignore[misc] # pika's class is untyped here
    """A connection was ended because an answer did not come in time."""


class PunctualConnection(pika.BlockingConnection):  # type: ignore[misc] # pika's class is untyped here
    """A connection that ends, as after missed heartbeats, where an answer does not come within `answer` seconds.

    `answer` None: ANSWER. `node`: the one that it leads to. Every wait of pika's passes `_flush_output`. A
    wait for messages may last longer, by as much as its caller says.
    """

    def __init__(
        self,
        parameters: pika.ConnectionParameters,
        node: Node,
        *,
        answer: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(parameters, **more)
        self.node = node
        self._answer = ANSWER if answer is None else answer
        self._asked_for = 0.0

    @override
    def process_data_events(self, time_limit: float | None = 0) -> None:
        self._asked_for = time_limit or 0.0
        try:
            super().process_data_events(time_limit)
        finally:
            self._asked_for = 0.0

    @override
    def _flush_output(self, *waiters: Callable[[], bool]) -> None:
        with answered_within(self, self._answer + self._asked_for):
            super()._flush_output(*waiters)


@contextmanager
def answered_within(connection: Any, seconds: float) -> Iterator[None]:
    """End `connection` (a BlockingConnection) unless the block ends within `seconds`."""
    if connection.is_closed:
        yield  # it has no clock any more; what the block asks of it raises pika's own error
        return
    inner = connection._impl
    silence = SilenceError(f"no answer within {seconds:g} s")
    timer = inner._adapter_call_later(seconds, lambda: _end(inner, silence))
    try:
        yield
    finally:
        if connection.is_open:
            inner._adapter_remove_timeout(timer)


def _end(inner: Any, reason: Exception) -> None:
    if inner._transport is not None:  # otherwise it is ending already
        inner._terminate_stream(reason)
