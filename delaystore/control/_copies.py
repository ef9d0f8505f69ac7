"""What is published for a request: its answer, or the request itself, put aside."""

from typing import Final

from delaystore.address import DEFAULT_EXCHANGE, parse_address
from delaystore.control.protocol import Answer
from delaystore.errors import UnsupportedMessageError
from delaystore.headers import REJECTED_REASON
from delaystore.message import new_message_id
from delaystore.transports.rabbitmq.copies import Copy, rejected_copy
from delaystore.transports.rabbitmq.raw import Delivery, Entry, MalformedPropertiesError, RawProperties, text_value

_DIRECT: Final = "amq.rabbitmq.reply-to."
"""How the names begin by which RabbitMQ leads answers to a consumer without a queue. They count as no route."""
_PERSISTENT: Final = b"\x02"


def answer_copy(request: Delivery, answer: Answer) -> Copy | None:
    """The answer as a message; None: nobody can be told."""
    properties = request.properties
    try:
        reply_to = properties.text("reply_to")
        if not reply_to:
            return None
        address = parse_address(reply_to)
    except (MalformedPropertiesError, UnsupportedMessageError):
        return None
    fields = {
        "content_type": _short("application/json"),
        "delivery_mode": _PERSISTENT,
        "message_id": _short(new_message_id()),  # by which it is known if it comes back
    }
    correlation = properties.fields.get("correlation_id", properties.fields.get("message_id"))
    if correlation is not None:
        fields["correlation_id"] = correlation
    is_direct = address.exchange == DEFAULT_EXCHANGE and address.routing_key.startswith(_DIRECT)
    return Copy(address, RawProperties.of(fields), answer.body, mandatory=not is_direct)


def request_copy(request: Delivery, problem: str, queue: str) -> Copy:
    """The request as a message for the rejected queue, with what is wrong with it."""
    said = [Entry(REJECTED_REASON.encode(), text_value(problem))]
    return rejected_copy(queue, request.properties, request.body, said)


def wants_answer(properties: RawProperties) -> bool:
    """Whether the request names somebody to be told."""
    try:
        return bool(properties.text("reply_to"))
    except MalformedPropertiesError:
        return False


def _short(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded
