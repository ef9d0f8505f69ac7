"""OpenTelemetry's traces, as an observer of the dispatcher."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from opentelemetry import context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import (
    Link,
    ProxyTracerProvider,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
    get_tracer_provider,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from typing_extensions import override

from delaystore.dispatcher import PassReport, Sending, SettledMessages
from delaystore.message import DelayedMessage
from delaystore.processes import WouldBlockError
from delaystore.server.telemetry import _names as names
from delaystore.server.telemetry._metrics import LatenessSink, MeasuredSending, OpenTelemetryMetrics

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_W3C: Final = TraceContextTextMapPropagator()
_NANOSECONDS: Final = 1_000_000_000
_TRACED: Final = ("delivered", "moved_to_error_queue", "expired", "failed", "deferred")
"""Outcomes that become spans; a message without an answer in an outage is tried again and again."""


class OpenTelemetryObserver(OpenTelemetryMetrics):
    """Measures and traces sending and dispatching; the metrics are those of OpenTelemetryMetrics.

    Without a tracer provider, or where the caller's trace is not sampled, there are no spans; a message carries a trace
    context where there is one, and keeps a `traceparent` header of its own.

    Args:
        endpoint: As of OpenTelemetryMetrics.
        destinations: As of OpenTelemetryMetrics.
        meter_provider: As of OpenTelemetryMetrics.
        tracer_provider: Where spans go; None: the global one.
        lateness: As of OpenTelemetryMetrics.

    """

    def __init__(
        self,
        endpoint: str,
        *,
        destinations: int = 0,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        lateness: LatenessSink | None = None,
    ) -> None:
        super().__init__(endpoint, destinations=destinations, meter_provider=meter_provider, lateness=lateness)
        self._tracer = get_tracer(names.SCOPE, tracer_provider=tracer_provider)

    @override
    def send_begins(self, message: DelayedMessage | None) -> Sending:
        return TracedSending(self, self._tracer, message, self._operation(names.SEND))

    @override
    def messages_settled(self, report: PassReport, messages: SettledMessages) -> None:
        ended = time.time_ns() - round(report.durations.settle * _NANOSECONDS)
        began = ended - round(report.durations.forward * _NANOSECONDS)
        for outcome in _TRACED:
            for message in messages.by_outcome.get(outcome, ()):
                if TRACEPARENT in message.headers:
                    self._trace(message, outcome, messages.reasons.get(message.message_id), began, ended)

    def _trace(self, message: DelayedMessage, outcome: str, reason: str | None, began: int, ended: int) -> None:
        created = creation_context(message)
        if created is None or not created.trace_flags.sampled:
            return
        span = self._tracer.start_span(
            f"{names.FORWARD} {message.destination}",
            context.Context(),
            SpanKind.CLIENT,  # a PRODUCER is who makes the creation context
            {**self._operation(names.FORWARD), **attributes_of(message), names.OUTCOME: outcome},
            [Link(created)],
            began,
        )
        if outcome != "delivered":
            span.set_attribute(names.ERROR_TYPE, outcome)
            span.set_status(Status(StatusCode.ERROR, reason))
        span.end(ended)


class TracedSending(MeasuredSending):
    """One call of `send` or `send_many` as a span, which is the current one while it goes on."""

    def __init__(
        self,
        observer: OpenTelemetryObserver,
        tracer: Tracer,
        message: DelayedMessage | None,
        operation: Mapping[str, str],
    ) -> None:
        super().__init__(observer)
        self._one = message is not None
        self._span = tracer.start_span(
            names.SEND if message is None else f"{names.SEND} {message.destination}",
            kind=SpanKind.PRODUCER,
            attributes={**operation, **({} if message is None else attributes_of(message))},
        )
        inside = set_span_in_context(self._span)
        self._headers: dict[str, str] = {}
        _W3C.inject(self._headers, inside)
        self._token = context.attach(inside)

    @override
    def stamped(self, message: DelayedMessage) -> DelayedMessage:
        super().stamped(message)
        if TRACEPARENT not in message.headers:
            return replace(message, headers={**message.headers, **self._headers}) if self._headers else message
        created = creation_context(message)
        if created is not None:
            self._span.add_link(created)
        return message

    @override
    def ended(self, error: BaseException | None) -> None:
        context.detach(self._token)
        if isinstance(error, WouldBlockError):
            return
        super().ended(error)
        if not self._one:
            self._tell_of_many()
        if error is not None:
            self._span.record_exception(error)
            self._span.set_attribute(names.ERROR_TYPE, type(error).__name__)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()

    def _tell_of_many(self) -> None:
        self._span.set_attribute(names.BATCH_MESSAGE_COUNT, self.count)
        if self.destination is not None:
            self._span.set_attribute(names.DESTINATION_NAME, self.destination)
            self._span.update_name(f"{names.SEND} {self.destination}")


def attributes_of(message: DelayedMessage) -> Mapping[str, str | int]:
    """The attributes of a span about one message; never anything of its body or headers."""
    conversation = message.properties.get("correlation_id")
    return {
        names.DESTINATION_NAME: message.destination,
        names.MESSAGE_ID: message.message_id,
        names.BODY_SIZE: len(message.body),
        names.DUE_TIME: message.due_time.isoformat(),
        **({names.FAILURE_COUNT: message.failure_count} if message.failure_count else {}),
        **({names.CONVERSATION_ID: conversation} if conversation else {}),
    }


def creation_context(message: DelayedMessage) -> SpanContext | None:
    """The trace context that `message` carries; None: it carries none that can be read."""
    carrier = {name: message.headers[name] for name in (TRACEPARENT, TRACESTATE) if name in message.headers}
    if not all(isinstance(value, str) for value in carrier.values()):
        return None
    found = get_current_span(_W3C.extract(carrier, context.Context())).get_span_context()
    return found if found.is_valid else None


def has_tracer_provider() -> bool:
    """Whether a provider is set, as `opentelemetry-instrument` does."""
    return not isinstance(get_tracer_provider(), ProxyTracerProvider)
