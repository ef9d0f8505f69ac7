"""The error queue: declaring it before it is needed, and what goes there."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from delaystore.dispatcher._uncarriable import with_headers_in_body, with_text
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
from delaystore.settings import DelayedDeliverySettings
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.dispatcher")

DECLARE_AGAIN: Final = 30.0
"""Seconds between attempts to declare it."""
SHORTENED: Final = 256
"""Characters kept of an explanation that does not fit."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that failed, and why. `kind` stands in the error queue as the exception's type."""

    message: DelayedMessage
    kind: str
    reason: str


class ErrorQueue:
    """Declares the error queue when `automatic_setup` allows, and makes the copies that go there.

    A broker that is down or forbids declaring stops nothing.
    """

    def __init__(
        self,
        transport: Transport,
        settings: DelayedDeliverySettings,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self.name: Final = settings.error_queue
        self._allowed = settings.automatic_setup
        self._monotonic = monotonic
        self._wanted = self._allowed
        self._not_before = 0.0
        self._warned = False

    def ensure(self) -> None:
        """Declare it, unless that was done, or tried a moment ago. Never raises."""
        if not self._wanted or self._monotonic() < self._not_before:
            return
        self._not_before = self._monotonic() + DECLARE_AGAIN
        try:
            self._transport.declare_error_queue(self.name)
        except Exception as error:
            (logger.debug if self._warned else logger.warning)("cannot declare the error queue: %s", error)
            self._warned = True
        else:
            self._wanted = self._warned = False

    def refused(self) -> None:
        """Note that it did not take a message: somebody may have deleted it, so it is declared again."""
        self._wanted = self._allowed

    def copy(self, failure: Failure, now: datetime) -> DelayedMessage:
        """The copy for the error queue: original id, body, headers and properties, and failure headers.

        Header names are NServiceBus' own, so that its tools show the failure. If the transport cannot carry that, the
        first that it can: with a shortened explanation; with text for the headers and properties that do not fit; with
        all of them in the body. Raises InvalidMessageError if it carries none.
        """
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
