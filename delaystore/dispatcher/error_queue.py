"""The error queue: it is declared in time, and takes a message with the reason why it failed."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from delaystore.calls import in_background
from delaystore.errors import InvalidMessageError
from delaystore.message import NOTHING, DelayedMessage, UnreadableMessage
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.sql.codec import encode_mapping
from delaystore.text import (
    DUE_TIME,
    EXCEPTION_MESSAGE,
    EXCEPTION_TYPE,
    EXPIRATION,
    FAILED_CARBON_COPIES,
    FAILED_QUEUE,
    FAILURE_COUNT,
    HEADERS_IN_BODY,
    RAW_HEADERS,
    RAW_PROPERTIES,
    REPLAY_HEADERS,
    STACK_TRACE,
    TIME_OF_FAILURE,
    without_carbon_copies,
)
from delaystore.transports.abc import Transport

logger = logging.getLogger("delaystore.dispatcher")
DECLARE_AGAIN: Final = 30.0
"""Seconds between attempts."""

GRACE: Final = 2.0
"""Seconds that dispatching waits for the first attempt: as a rule it is there before a message needs it."""


class ErrorQueueDeclaration:
    """Declares the error queue when `automatic_setup` allows it, each attempt in a thread of its own.

    So a broker that is down, forbids it or does not answer holds up nothing.
    """

    def __init__(
        self,
        transport: Transport,
        settings: DelayedDeliverySettings,
    ) -> None:
        self._transport = transport
        self._name = settings.error_queue
        self._allowed = settings.automatic_setup
        self._wanted = self._allowed
        self._not_before = 0.0
        self._lock = threading.Lock()
        self._attempt: threading.Thread | None = None
        self.problem: str | None = None
        """Why it is not declared; None: it is, or there was no attempt yet, or none is needed."""

    def ensure(self) -> None:
        """Begin to declare it, unless that was done, or tried a moment ago. Never raises.

        Waits a moment for the end, unless it is known to fail.
        """
        if not self._wanted or time.monotonic() < self._not_before:
            return
        attempt = threading.Thread(target=self._declare, name="delaystore-error-queue", daemon=True)
        with self._lock:
            if self._attempt is not None or time.monotonic() < self._not_before:
                return
            self._not_before = time.monotonic() + DECLARE_AGAIN
            self._attempt = attempt
            known = self.problem is not None
        try:
            attempt.start()
        except RuntimeError as error:  # no thread can be started
            self._end(str(error))
            return
        if not known:
            attempt.join(GRACE)
            with self._lock:
                if self._attempt is attempt:
                    self._failed(f"no answer within {GRACE:g} s; it is waited for, and dispatching goes on")

    def again(self) -> None:
        """Declare it once more: it did not take a message, and may have been deleted."""
        self._wanted = self._allowed

    def _declare(self) -> None:
        try:
            self._transport.declare_error_queue(self._name)
        except Exception as error:
            self._end(str(error) or type(error).__name__)
        else:
            self._end(None)

    def _end(self, problem: str | None) -> None:
        """Note how the attempt ended; None: well."""
        with self._lock:
            self._attempt = None
            if problem is not None:
                self._failed(problem)
                return
            if self.problem is not None:
                logger.info("declared the error queue")
            self._wanted, self.problem = False, None

    def _failed(self, problem: str) -> None:
        """Note why it is not declared; the log hears of the first reason only."""
        (logger.debug if self.problem else logger.warning)("cannot declare the error queue: %s", problem)
        self.problem = problem


Carries = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""Whether a message of these headers and properties can be carried."""


def with_text(message: DelayedMessage, carries: Carries) -> DelayedMessage:
    """`message`, with one header for the headers that cannot be carried as they are, and one for such properties."""
    headers, raw_headers = _parted(message.headers, lambda header: carries(header, NOTHING))
    properties, raw_properties = _parted(message.properties, lambda property_: carries(NOTHING, property_))
    texts = {RAW_HEADERS: encode_mapping(raw_headers), RAW_PROPERTIES: encode_mapping(raw_properties)}
    given = {name: text for name, text in texts.items() if text is not None}
    return replace(message, headers={**headers, **given}, properties=properties)


def with_headers_in_body(message: DelayedMessage) -> DelayedMessage:
    """`message`, where the body's first line holds all headers and properties, and one header the length of that."""
    headers, properties = (encode_mapping(mapping) or "{}" for mapping in (message.headers, message.properties))
    line = f'{{"headers":{headers},"properties":{properties}}}\n'.encode()
    return replace(message, body=line + message.body, headers={HEADERS_IN_BODY: len(line)}, properties=NOTHING)


def _parted(
    mapping: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], bool]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    fitting = {name: value for name, value in mapping.items() if fits({name: value})}
    return fitting, {name: value for name, value in mapping.items() if name not in fitting}


SHORTENED: Final = 256
"""Characters kept of an explanation that does not fit."""


EXPIRED: Final = "Expired"
"""The kind of messages whose latest delivery has passed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that failed, and why. `kind` stands in the error queue as the exception's type."""

    message: DelayedMessage
    kind: str
    reason: str


class ErrorQueueCopies:
    """Makes the copies that go to the error queue, and has it declared."""

    def __init__(self, transport: Transport, settings: DelayedDeliverySettings) -> None:
        self._transport = transport
        self.name: Final = settings.error_queue
        self.declaration: Final = ErrorQueueDeclaration(transport, settings)

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
    own = {name: value for name, value in message.headers.items() if name not in REPLAY_HEADERS and name != EXPIRATION}
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


REQUEST_EVERY: Final = 15.0
"""Seconds between two questions."""

KNOWN_FOR: Final = 60.0
"""Seconds for which an answer counts."""

LONGEST_END: Final = 1.0
"""Seconds to wait at the end for an answer that is under way."""


class KnownDepth(NamedTuple):
    """The number of messages in a queue, and how many seconds ago it was answered."""

    messages: int
    age: float


class QueueDepth:
    """Asks now and then, in a thread of its own, one at a time: a broker may not answer at all.

    `queue`: its name, for threads and the log. `question`: how many messages are in it; None: there is no such queue.
    `may_ask`: whether the broker is there, as far as is known; it returns at once.
    """

    def __init__(
        self,
        queue: str,
        question: Callable[[], int | None],
        may_ask: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._question = question
        self._may_ask = may_ask
        self._lock = threading.Lock()
        self._asking = False
        self._ended = False
        self._answered = threading.Event()
        self._not_before = 0.0
        self._answer: tuple[int | None, float] = (None, 0.0)

    def latest(self) -> KnownDepth | None:
        """The last answer; None: it is not known. Begins another question if it is time; returns at once."""
        now = time.monotonic()
        with self._lock:
            begin = self._is_time(now) and self._may_ask()
            if begin:
                self._asking, self._not_before = True, now + REQUEST_EVERY
                self._answered.clear()
        if begin and not in_background("delaystore-queue-depth", self._ask):
            self._asking = False
        messages, answered_at = self._answer
        age = max(0.0, now - answered_at)
        return None if messages is None or age >= KNOWN_FOR else KnownDepth(messages, age)

    def end(self) -> None:
        """Ask no more, and wait a moment for an answer that is under way: the transport is perhaps closed then."""
        with self._lock:
            self._ended, asking = True, self._asking
        if asking:
            self._answered.wait(LONGEST_END)

    def _is_time(self, now: float) -> bool:
        return not self._ended and not self._asking and now >= self._not_before

    def _ask(self) -> None:
        messages = None
        try:
            messages = self._question()
        except Exception as error:
            logger.debug("cannot read the depth of %r: %s", self._queue, error)
        finally:
            self._answer = messages, time.monotonic()
            self._asking = False
            self._answered.set()
