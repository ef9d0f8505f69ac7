"""How often messages of a queue may be given back, as far as AMQP tells, and copies of those that were too often.

A quorum queue counts how often a message was given back; one that is given back at its limit is dropped, or
dead-lettered. From RabbitMQ 4.0 on that limit is 20 unless told otherwise (4.3 counts only what a consumer rejects),
before it there is none. Looking gives back, too. So a message that has used up half of its limit is put at the end of
its queue as a copy, which was never given back, and is acknowledged once that is confirmed.
"""

import re
from typing import Any, Final

from pika import exceptions, spec

from delaystore.errors import TransportError
from delaystore.transports.rabbitmq._properties import UNENCODABLE
from delaystore.transports.rabbitmq.delay_headers import COUNTED_BY_QUEUE
from delaystore.transports.rabbitmq.pika_errors import quiet_pika, reason_of
from delaystore.transports.rabbitmq.queues import broker_version, error_queue_arguments

_BY_DEFAULT: Final = 20
"""https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling"""
_OTHER_LIMIT: Final = re.compile(r"inequivalent arg 'x-delivery-limit' .* but current is (?:the value )?'(-?\d+)'")
_OTHER_TYPE: Final = re.compile(r"inequivalent arg 'x-queue-type' ")


def delivery_limit(channel: Any, name: str) -> int | None:
    """How often a message of the queue, which exists, may be given back; None: as you like.

    AMQP does not tell a queue's arguments, but it refuses to declare one anew with others, and says which it has. So
    the queue is declared as delaystore declares error queues, which changes nothing. A limit that a policy sets is not
    seen: where the arguments set none, or may not be asked for, it is taken to be 20.
    """
    arguments = error_queue_arguments("quorum", broker_version(channel))
    probe = channel.connection.channel()
    try:
        with quiet_pika():
            probe.queue_declare(name, durable=True, arguments=arguments)
    except exceptions.ChannelClosedByBroker as error:
        return _told(error.reply_text)
    probe.close()
    return None


def _told(refusal: str) -> int | None:
    if _OTHER_TYPE.search(refusal):
        return None  # a classic queue counts nothing
    limit = _OTHER_LIMIT.search(refusal)
    return _BY_DEFAULT if limit is None else max(0, int(limit[1]))


def given_back(properties: spec.BasicProperties) -> int:
    """How often the message was given back, as its queue counts; 0 where it counts nothing."""
    counts = [(properties.headers or {}).get(name) for name in COUNTED_BY_QUEUE]
    return max((int(count) for count in counts if isinstance(count, int)), default=0)


class Renewal:
    """Puts copies of messages at the end of their queue. `close` ends its channel."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._channel: Any = None

    def renew(self, channel: Any, method: Any, properties: spec.BasicProperties, body: bytes) -> None:
        """Put a copy, as it first came, into the queue, and acknowledge the message once that is confirmed.

        Raises TransportError where the copy cannot be written, or is not taken: the message stays where it was.
        """
        if self._channel is None:
            self._channel = channel.connection.channel()
            self._channel.confirm_delivery()
        headers = {key: it for key, it in (properties.headers or {}).items() if key not in COUNTED_BY_QUEUE}
        properties.headers = headers or None
        try:
            self._channel.basic_publish("", self._name, body, properties, mandatory=True)
        except (*UNENCODABLE, exceptions.UnroutableError, exceptions.NackError) as error:
            raise self._refusal(str(error) or type(error).__name__) from None
        except exceptions.ChannelClosedByBroker as error:
            raise self._refusal(reason_of(error)) from None
        channel.basic_ack(method.delivery_tag)

    def close(self) -> None:
        """Close the channel, if there is one."""
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    def _refusal(self, reason: str) -> TransportError:
        return TransportError(
            f"a message of {self._name!r} was looked at so often that RabbitMQ may drop it, at {self._limit} times, "
            f"and cannot be put there anew ({reason}); give the queue a policy with a higher delivery-limit first"
        )
