"""Messages that endpoints of NServiceBus send to their timeout manager (5 and 6, Particular/NServiceBus)."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, ClassVar, Final
from uuid import UUID

from typing_extensions import override

from delaystore.ingress.reading.content import IncomingContent, text_of
from delaystore.ingress.reading.forms._times import unreadable
from delaystore.ingress.reading.forms.abc import Delay, DelayForm
from delaystore.ingress.reading.incoming import RejectedMessageError, SagaCleared
from delaystore.message import MAX_MESSAGE_ID_BYTES, new_message_id
from delaystore.migrations.records.nservicebus import MESSAGE_ID, SAGA_ID, destination
from delaystore.transports.rabbitmq.delay_headers import TIME_SENT, parsed_time, time_sent_text

EXPIRE: Final = "NServiceBus.Timeout.Expire"
"""The due time, as `time_sent_text` writes it."""
ROUTE_TO: Final = "NServiceBus.Timeout.RouteExpiredTimeoutTo"
"""The queue that the timeout is for."""
CLEAR: Final = "NServiceBus.ClearTimeouts"
RELATED_TO: Final = "NServiceBus.RelatedToTimeoutId"
_REPLY_TO: Final = "NServiceBus.ReplyToAddress"
_AT_ONCE: Final = timedelta(seconds=1)
"""A timeout manager forwards messages that are due within it unchanged."""


class NServiceBusForm(DelayForm):
    """A timeout, or the end of a saga, which cancels its timeouts.

    A timeout goes where it says, or else where replies go. As from a timeout manager, it is forwarded with all its
    headers, but TimeSent says when it was due, and RelatedToTimeoutId which timeout it was. The message id of a saga's
    timeout begins with the saga's id and a slash.
    """

    name: ClassVar = "nservicebus"
    reaches_others: ClassVar = True

    @override
    def read(self, content: IncomingContent, start: datetime) -> Delay | SagaCleared | None:
        headers = content.headers
        if CLEAR in headers:
            return _cleared(headers)
        expire = headers.get(EXPIRE)
        if expire is None:
            return None
        due_time = parsed_time(expire)
        if due_time is None:
            raise unreadable(EXPIRE, expire, "a time such as 2027-01-31 09:00:00:000000 Z")
        message_id = _message_id(content)
        if due_time > start + _AT_ONCE:
            headers[TIME_SENT] = time_sent_text(due_time)
            headers[RELATED_TO] = message_id
        return Delay(max(start, due_time), _destination(content), message_id)


def is_timeout(content: IncomingContent, start: datetime) -> bool:
    """Whether a message is a timeout that is due after `start`; a timeout manager has forwarded due ones."""
    due_time = parsed_time(content.headers.get(EXPIRE))
    return due_time is not None and due_time > start


def _message_id(content: IncomingContent) -> str:
    """The message's own id, or a fresh one; of a saga's timeout behind the saga's, as a digest if it is too long."""
    own = content.message_id or text_of(content.headers, MESSAGE_ID) or new_message_id()
    saga = _saga(content.headers)
    if not saga or own.startswith(f"{saga}/"):
        return own
    room = MAX_MESSAGE_ID_BYTES - len(saga) - 1
    return f"{saga}/{own if len(own.encode()) <= room else sha256(own.encode()).hexdigest()}"


def _cleared(headers: Mapping[str, Any]) -> SagaCleared:
    saga = _saga(headers)
    if not saga:
        raise RejectedMessageError(f"header {CLEAR} without {SAGA_ID}: nothing says whose timeouts are to be cancelled")
    return SagaCleared(f"{saga}/")


def _saga(headers: Mapping[str, Any]) -> str:
    """The saga's id, always written the same way; empty: there is none."""
    text = text_of(headers, SAGA_ID)
    if text is None:
        return ""
    try:
        saga = UUID(text.strip().strip("()"))
    except ValueError:
        raise unreadable(SAGA_ID, text, "a GUID") from None
    return str(saga) if saga.int else ""


def _destination(content: IncomingContent) -> str | None:
    queue = text_of(content.headers, ROUTE_TO) or content.properties.get("reply_to")
    return destination(queue or text_of(content.headers, _REPLY_TO)) or None
