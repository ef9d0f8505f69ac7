"""What goes to the error queue, and what it tells."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from delaystore.errors import InvalidMessageError
from delaystore.headers import (
    DUE_TIME,
    EXCEPTION_MESSAGE,
    EXCEPTION_TYPE,
    EXPIRATION,
    FAILED_QUEUE,
    FAILURE_COUNT,
    STACK_TRACE,
    TIME_OF_FAILURE,
)
from delaystore.message import DelayedMessage

SHORTENED: Final = 256
"""Characters of an explanation where the whole of it does not fit."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that failed, and why. `kind` stands in the error queue as the exception's type."""

    message: DelayedMessage
    kind: str
    reason: str


def error_copy(
    failure: Failure, error_queue: str, now: datetime, check: Callable[[DelayedMessage], None]
) -> DelayedMessage:
    """The message as it goes to the error queue: original id, body, headers and properties, and failure headers.

    Header names are NServiceBus' own, so that its tools show the failure. Explanations are shortened where `check`,
    the transport's, refuses the whole; raises InvalidMessageError when it refuses the short one as well.
    """
    copy = _copy(failure, error_queue, now, failure.reason)
    try:
        check(copy)
    except InvalidMessageError:
        copy = _copy(failure, error_queue, now, failure.reason[:SHORTENED])
        check(copy)
    return copy


def _copy(failure: Failure, error_queue: str, now: datetime, reason: str) -> DelayedMessage:
    message = failure.message
    properties = dict(message.properties)
    expiration = properties.pop("expiration", None)
    headers = {**message.headers, **_failure_headers(failure, now, reason)}
    if expiration is not None:
        headers[EXPIRATION] = expiration
    return DelayedMessage(
        message_id=message.message_id,
        destination=error_queue,
        due_time=message.due_time,
        body=message.body,
        headers=headers,
        properties=properties,
        failure_count=message.failure_count,
    )


def _failure_headers(failure: Failure, now: datetime, reason: str) -> Mapping[str, Any]:
    message = failure.message
    failures = message.failure_count + 1
    return {
        EXCEPTION_TYPE: f"delaystore.{failure.kind}",
        EXCEPTION_MESSAGE: reason,
        STACK_TRACE: f"delaystore forwarding to {message.destination}, attempt {failures}: {reason}",
        TIME_OF_FAILURE: f"{now:%Y-%m-%d %H:%M:%S:%f} Z",
        FAILED_QUEUE: message.destination,
        DUE_TIME: message.due_time.isoformat(),
        FAILURE_COUNT: failures,
    }
