"""The error queue, and what goes there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from delaystore.dispatcher._declaration import ErrorQueueDeclaration
from delaystore.dispatcher._uncarriable import with_headers_in_body, with_text
from delaystore.errors import InvalidMessageError
from delaystore.headers import (
    DUE_TIME,
    EXCEPTION_MESSAGE,
    EXCEPTION_TYPE,
    EXPIRATION,
    FAILED_CARBON_COPIES,
    FAILED_QUEUE,
    FAILURE_COUNT,
    MARKS,
    STACK_TRACE,
    TIME_OF_FAILURE,
    without_carbon_copies,
)
from delaystore.message import DelayedMessage, UnreadableMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.transports.abc import Transport

SHORTENED: Final = 256
"""Characters kept of an explanation that does not fit."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that failed, and why. `kind` stands in the error queue as the exception's type."""

    message: DelayedMessage
    kind: str
    reason: str


class ErrorQueue:
    """Makes the copies that go to the error queue, and has it declared."""

    def __init__(self, transport: Transport, settings: DelayedDeliverySettings) -> None:
        self._transport = transport
        self.name: Final = settings.error_queue
        self._declaration = ErrorQueueDeclaration(transport, settings)

    @property
    def problem(self) -> str | None:
        """Why the error queue is not declared; None: it is, or nobody has tried yet, or need not."""
        return self._declaration.problem

    def ensure(self) -> None:
        """Have it declared, unless that was done, or tried a moment ago. Never raises."""
        self._declaration.ensure()

    def refused(self) -> None:
        """Note that it did not take a message: somebody may have deleted it, so it is declared again."""
        self._declaration.again()

    def copy(self, failure: Failure, now: datetime) -> DelayedMessage:
        """The copy for the error queue: original id, body, headers and properties, and failure headers.

        Header names are NServiceBus' own, so that its tools show the failure. If the transport cannot carry that, the
        first that it can: with a shortened explanation; with text for the headers and properties that do not fit; with
        all of them in the body. Raises InvalidMessageError if it carries none.
        """
        failure = replace(failure, message=_marked(failure.message))
        for copy in self._copies(failure, now):
            try:
                self._transport.check(copy)
            except InvalidMessageError as error:
                refusal = error
            else:
                return copy
        raise refusal

    def _copies(self, failure: Failure, now: datetime) -> Iterator[DelayedMessage]:
        """From the copy as it should be to the one that is easiest to carry."""
        yield _copy(failure, self.name, now)
        short = replace(failure, reason=failure.reason[:SHORTENED])
        copy = _copy(short, self.name, now)
        yield copy
        yield with_text(copy, partial(self._carries, copy))
        yield _copy(replace(short, message=with_headers_in_body(failure.message)), self.name, now)

    def _carries(self, copy: DelayedMessage, headers: Mapping[str, Any], properties: Mapping[str, Any]) -> bool:
        try:
            self._transport.check(replace(copy, body=b"", headers=headers, properties=properties))
        except InvalidMessageError:
            return False
        return True


def _marked(message: DelayedMessage) -> DelayedMessage:
    """With CC and BCC as they are in the error queue, and without a sender's headers that a replay would act upon."""
    if isinstance(message, UnreadableMessage):
        return message
    own = {name: value for name, value in message.headers.items() if name not in MARKS and name != EXPIRATION}
    return replace(message, headers=without_carbon_copies(own, FAILED_CARBON_COPIES))


def _copy(failure: Failure, error_queue: str, now: datetime) -> DelayedMessage:
    message = failure.message
    properties = dict(message.properties)
    expiration = properties.pop("expiration", None)
    headers = {**message.headers, **_failure_headers(failure, now)}
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


def _failure_headers(failure: Failure, now: datetime) -> Mapping[str, Any]:
    message = failure.message
    failures = message.failure_count + 1
    return {
        EXCEPTION_TYPE: f"delaystore.{failure.kind}",
        EXCEPTION_MESSAGE: failure.reason,
        STACK_TRACE: f"delaystore forwarding to {message.destination}, attempt {failures}: {failure.reason}",
        TIME_OF_FAILURE: f"{now:%Y-%m-%d %H:%M:%S:%f} Z",
        FAILED_QUEUE: message.destination,
        DUE_TIME: message.due_time.isoformat(),
        FAILURE_COUNT: failures,
    }
