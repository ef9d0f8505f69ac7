"""`x-opt-delivery-time` and `x-opt-delivery-delay`, as publishers of AMQP 1.0 write them: message annotations."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from typing_extensions import override

from delaystore.ingress.reading.content import IncomingContent, shown
from delaystore.ingress.reading.forms._annotations import read_annotations
from delaystore.ingress.reading.forms._times import integer_in, later, since_epoch, unreadable, whole_second
from delaystore.ingress.reading.forms.abc import Delay, DelayForm
from delaystore.ingress.reading.incoming import RejectedMessageError

DELIVERY_TIME: Final = "x-opt-delivery-time"
"""Milliseconds since 1970."""
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
"""Milliseconds."""
ANNOTATIONS: Final = "x-amqp-1.0-message-annotations"
"""Where RabbitMQ 3 keeps all annotations; RabbitMQ 4 makes a header of each."""


class Amqp1Form(DelayForm):
    """A time or a delay in milliseconds, as any whole number, its text, or a timestamp; the time comes first.

    RabbitMQ 4 hands a timestamp on in whole seconds, so it counts as the end of its second.
    """

    name: ClassVar = "amqp1"

    @override
    def read(self, content: IncomingContent, start: datetime) -> Delay | None:
        given: Mapping[str, Any] = content.headers
        if ANNOTATIONS in given:
            given = {**_annotations(given[ANNOTATIONS]), **given}
        at = given.get(DELIVERY_TIME)
        if at is not None:
            return Delay(max(start, _time(at)))
        delay = given.get(DELIVERY_DELAY)
        if delay is None:
            return None
        milliseconds = integer_in(delay)
        if milliseconds is None:
            raise unreadable(DELIVERY_DELAY, delay, "a whole number of milliseconds")
        return Delay(later(start, max(0, milliseconds), DELIVERY_DELAY))


def _time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return whole_second(value)
    milliseconds = integer_in(value)
    if milliseconds is None:
        raise unreadable(DELIVERY_TIME, value, "a whole number of milliseconds since 1970, or a timestamp")
    return since_epoch(milliseconds, DELIVERY_TIME)


def _annotations(section: Any) -> Mapping[str, int | str]:
    encoded = section.encode() if isinstance(section, str) else section
    try:
        if not isinstance(encoded, bytes):
            raise ValueError("neither text nor bytes")
        return read_annotations(encoded)
    except ValueError as error:
        raise RejectedMessageError(f"header {ANNOTATIONS} cannot be read: {error}: {shown(section)}") from None
