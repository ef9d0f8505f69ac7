"""`delaystore.due-time`: a time, for publishers that can write one."""

from datetime import datetime
from typing import ClassVar

from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.ingress.reading.content import IncomingContent
from delaystore.ingress.reading.forms._times import unreadable, whole_second
from delaystore.ingress.reading.forms.abc import Delay, DelayForm
from delaystore.ingress.reading.incoming import RejectedMessageError
from delaystore.text import DUE_TIME, parse_instant


class DueTimeForm(DelayForm):
    """ISO 8601 with an offset, or AMQP's timestamp, which has whole seconds, and counts as the end of its second."""

    name: ClassVar = "due-time"

    @override
    def read(self, content: IncomingContent, start: datetime) -> Delay | None:
        value = content.headers.get(DUE_TIME)
        if value is None:
            return None
        if isinstance(value, datetime):
            return Delay(max(start, whole_second(value)))
        if not isinstance(value, str):
            raise unreadable(DUE_TIME, value, "an ISO 8601 time, or a timestamp")
        try:
            return Delay(max(start, parse_instant(value, f"header {DUE_TIME}")))
        except ConfigurationError as error:
            raise RejectedMessageError(str(error)) from None
