"""`delaystore.due-time`: a time, for publishers that can write one; and headers of the latest delivery."""

from datetime import datetime
from typing import ClassVar

from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.ingress.reading.content import IncomingContent
from delaystore.ingress.reading.forms._times import integer_in, later, unreadable, whole_second
from delaystore.ingress.reading.forms.abc import Delay, DelayForm
from delaystore.ingress.reading.incoming import RejectedMessageError
from delaystore.text import DUE_TIME, MAX_LATE_HEADER, NOT_AFTER_HEADER, parse_instant


class DueTimeForm(DelayForm):
    """ISO 8601 with an offset, or AMQP's timestamp, which has whole seconds, and counts as the end of its second."""

    name: ClassVar = "due-time"

    @override
    def read(self, content: IncomingContent, start: datetime) -> Delay | None:
        value = content.headers.get(DUE_TIME)
        return None if value is None else Delay(max(start, time_in(DUE_TIME, value)))


def time_in(header: str, value: object) -> datetime:
    """The time that a header's value says. Raises RejectedMessageError."""
    if isinstance(value, datetime):
        return whole_second(value)
    if not isinstance(value, str):
        raise unreadable(header, value, "an ISO 8601 time, or a timestamp")
    try:
        return parse_instant(value, f"header {header}")
    except ConfigurationError as error:
        raise RejectedMessageError(str(error)) from None


def latest_delivery(content: IncomingContent, due_time: datetime) -> datetime | None:
    """The latest delivery that a message of any delay form asks for; None: it asks for none.

    The headers are removed: a consumer that publishes the message again, with another delay, must not ask for it again.
    Raises RejectedMessageError.
    """
    not_after, max_late = content.headers.pop(NOT_AFTER_HEADER, None), content.headers.pop(MAX_LATE_HEADER, None)
    if max_late is None:
        return None if not_after is None else time_in(NOT_AFTER_HEADER, not_after)
    if not_after is not None:
        raise RejectedMessageError(
            f"it has both headers {NOT_AFTER_HEADER} and {MAX_LATE_HEADER}, and each is the latest delivery"
        )
    milliseconds = integer_in(max_late)
    if milliseconds is None or milliseconds <= 0:
        raise unreadable(MAX_LATE_HEADER, max_late, "a whole number of milliseconds above 0")
    return later(due_time, milliseconds, MAX_LATE_HEADER)
