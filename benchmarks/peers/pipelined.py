"""Publishing a batch with pika, pipelined: all of it first, then the confirms."""

from collections.abc import Sequence
from typing import Any, Final

import pika

from delaystore.text import Address

PERSISTENT: Final = 2


class PipelinedPublisher:
    """A SelectConnection whose loop runs, in the calling thread, only while a batch is on its way."""

    def __init__(self, url: str) -> None:
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0  # nobody answers them between two batches
        self._last_tag = 0
        self._lowest = 1
        self._unanswered: set[int] = set()
        self._channel: Any = None
        self._closing = False
        self._connection = pika.SelectConnection(
            parameters, on_open_callback=self._opened, on_open_error_callback=_failed, on_close_callback=self._closed
        )
        self._connection.ioloop.start()

    def publish(self, messages: Sequence[tuple[str, str, bytes]]) -> None:
        """Publish (message_id, queue, body) each, mandatory, and wait until all are confirmed; raises if one is not."""
        publish, properties = self._channel.basic_publish, pika.BasicProperties
        for message_id, queue, body in messages:
            publish("", queue, body, properties(message_id=message_id, delivery_mode=PERSISTENT), mandatory=True)
        self._await_answers(len(messages))

    def publish_to(self, messages: Sequence[tuple[str, Address, bytes]]) -> None:
        """As `publish`, to exchanges."""
        publish, properties = self._channel.basic_publish, pika.BasicProperties
        for message_id, (exchange, key), body in messages:
            publish(exchange, key, body, properties(message_id=message_id, delivery_mode=PERSISTENT), mandatory=True)
        self._await_answers(len(messages))

    def close(self) -> None:
        """End the connection."""
        self._closing = True
        self._connection.close()
        self._connection.ioloop.start()

    def _await_answers(self, count: int) -> None:
        first, self._last_tag = self._last_tag + 1, self._last_tag + count
        self._unanswered.update(range(first, self._last_tag + 1))
        self._connection.ioloop.start()

    def _closed(self, connection: Any, error: Exception) -> None:
        if not self._closing:
            _failed(connection, error)
        connection.ioloop.stop()

    def _opened(self, connection: Any) -> None:
        self._channel = connection.channel(on_open_callback=self._select)

    def _select(self, channel: Any) -> None:
        channel.add_on_return_callback(_returned)
        channel.confirm_delivery(self._on_answer, callback=lambda _: self._connection.ioloop.stop())

    def _on_answer(self, frame: Any) -> None:
        if not isinstance(frame.method, pika.spec.Basic.Ack):
            raise RuntimeError("a publish was nacked")
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._unanswered.difference_update(range(self._lowest, tag + 1))
            self._lowest = tag + 1
        else:
            self._unanswered.discard(tag)
        if not self._unanswered:
            self._connection.ioloop.stop()


def _returned(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
    raise RuntimeError(f"a publish came back: {method.reply_text}")


def _failed(_connection: Any, error: Exception) -> None:
    raise RuntimeError("the connection to RabbitMQ failed") from error
