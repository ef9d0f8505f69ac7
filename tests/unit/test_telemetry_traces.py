"""OpenTelemetry's traces: a span for each call that sends, one for each message that is forwarded, and a link."""

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import (
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    format_span_id,
    format_trace_id,
    get_current_span,
)

from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore
from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import Dispatcher
from delaystore.errors import DuplicateMessageError
from delaystore.server.telemetry import OpenTelemetryObserver
from delaystore.testing import FakeTransaction, SettableClock
from tests.dispatching import (
    NOON,
    REFUSED,
    UNCONFIRMED,
    UNROUTABLE,
    CountingStore,
    ScriptedTransport,
    message,
    settings,
)

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """A delivery and a dispatcher that are traced, and what was exported."""

    def __init__(self, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.provider = provider
        self.tracer = provider.get_tracer("test")
        self.observer = OpenTelemetryObserver("sales", tracer_provider=provider)
        self.store = CountingStore(SettableClock())
        self.transport = ScriptedTransport()
        self.delivery = DelayedDelivery("sales", self.store, observer=self.observer)
        self._exporter = exporter

    def dispatch(self) -> None:
        Dispatcher(self.store, self.transport, settings(), endpoint="sales", observer=self.observer).dispatch_due()

    def spans(self) -> list[ReadableSpan]:
        """What ended since the last call."""
        spans = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return spans

    def carried(self, message_id: str) -> object:
        """The trace context of a waiting message."""
        found = self.delivery.get(message_id)
        assert found is not None
        return found.headers.get("traceparent")


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(exporter: InMemorySpanExporter) -> Iterator[Traced]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield Traced(provider, exporter)
    provider.shutdown()


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def header_of(span: ReadableSpan) -> str:
    context = context_of(span)
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def test_a_send_is_a_span_whose_context_waits_with_the_message(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("request") as request:
        traced.delivery.send("billing", b"secret", delay=60, message_id="a", properties={"correlation_id": "order 17"})
        assert get_current_span() is request
    send, _ = traced.spans()
    assert (send.name, send.kind, send.status.status_code) == ("send billing", SpanKind.PRODUCER, StatusCode.UNSET)
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id
    assert send.attributes == {
        "messaging.system": "delaystore",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "billing",
        "messaging.message.id": "a",
        "messaging.message.body.size": 6,
        "messaging.message.conversation_id": "order 17",
        "delaystore.endpoint": "sales",
        "delaystore.due_time": "2027-01-01T12:01:00+00:00",
    }
    assert traced.carried("a") == header_of(send)


def test_the_forward_span_is_a_trace_of_its_own_that_links_to_the_send_span(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("request"):
        traced.delivery.send("billing", b"body", delay=0, message_id="a")
    send, _ = traced.spans()
    before = time.time_ns()
    with traced.tracer.start_as_current_span("whoever runs the dispatcher"):
        traced.dispatch()
    forward, _ = traced.spans()
    assert (forward.name, forward.kind, forward.parent) == ("forward billing", SpanKind.CLIENT, None)
    assert linked(forward) == [context_of(send).span_id]
    assert context_of(forward).trace_id != context_of(send).trace_id
    assert forward.attributes is not None
    assert forward.attributes["messaging.operation.name"] == "forward"
    assert forward.attributes["delaystore.outcome"] == "delivered"
    assert before <= (forward.start_time or 0) <= (forward.end_time or 0) <= time.time_ns()
    (arrived,) = traced.transport.arrived("billing")
    assert arrived.headers["traceparent"] == header_of(send)  # the creation context stays with the message


def test_send_many_is_one_span_to_which_each_message_is_linked(traced: Traced) -> None:
    traced.delivery.send_many(iter([message("a"), message("b")]))
    traced.delivery.send_many([message("c"), message("d", "shipping")])
    one, several = traced.spans()
    assert (one.name, several.name) == ("send billing", "send")
    assert one.attributes is not None
    assert several.attributes is not None
    assert one.attributes["messaging.batch.message_count"] == several.attributes["messaging.batch.message_count"] == 2
    assert "messaging.destination.name" not in several.attributes
    traced.dispatch()
    first, second = context_of(one).span_id, context_of(several).span_id
    forwards = {span.attributes["messaging.message.id"]: linked(span) for span in traced.spans() if span.attributes}
    assert forwards == {"a": [first], "b": [first], "c": [second], "d": [second]}


def test_an_enlisted_send_is_traced(traced: Traced) -> None:
    transaction = FakeTransaction()
    traced.delivery.enlist(transaction).send("billing", b"", delay=60, message_id="a")
    transaction.commit()
    (send,) = traced.spans()
    assert traced.carried("a") == header_of(send)


def test_a_message_s_own_trace_context_is_respected_and_linked(traced: Traced) -> None:
    traced.delivery.send("billing", b"", delay=0, message_id="a", headers={"traceparent": THEIRS})
    (send,) = traced.spans()
    assert linked(send) == [0xB7AD6B7169203331]
    assert traced.carried("a") == THEIRS
    traced.dispatch()
    (forward,) = traced.spans()
    assert linked(forward) == [0xB7AD6B7169203331]


@pytest.mark.parametrize("header", ["nonsense", 17, THEIRS.removesuffix("1") + "0"])
def test_what_is_no_sampled_trace_context_makes_no_forward_span(traced: Traced, header: object) -> None:
    traced.store.store(message("a", headers={"traceparent": header}))
    traced.store.store(message("b"))
    traced.dispatch()
    assert traced.spans() == []
    assert len(traced.transport.arrived("billing")) == 2


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [(UNROUTABLE, "moved_to_error_queue", "no such queue"), (REFUSED, "failed", "the queue is full")],
)
def test_a_forward_that_fails_says_so(traced: Traced, answer: object, outcome: str, reason: str) -> None:
    traced.transport.outcomes["billing"] = answer  # type: ignore[assignment]
    traced.delivery.send("billing", b"", delay=0)
    traced.dispatch()
    forward = traced.spans()[1]
    assert forward.attributes is not None
    assert forward.attributes["error.type"] == outcome
    assert forward.status.status_code is StatusCode.ERROR
    assert forward.status.description == reason


def test_a_message_that_expires_says_so(traced: Traced) -> None:
    traced.delivery.send("billing", b"", at=NOON - timedelta(hours=1), max_late=60)
    traced.dispatch()
    forward = traced.spans()[1]
    assert forward.attributes is not None
    assert forward.attributes["error.type"] == "expired"
    assert forward.status.description == "the latest delivery has passed: it was 2027-01-01 11:01:00Z"


def test_what_has_no_answer_in_an_outage_is_no_span(traced: Traced) -> None:
    traced.transport.outcomes["billing"] = UNCONFIRMED
    traced.delivery.send("billing", b"", delay=0)
    traced.dispatch()
    assert [span.name for span in traced.spans()] == ["send billing"]


def test_a_send_that_fails_says_so(traced: Traced) -> None:
    traced.delivery.send("billing", b"", delay=60, message_id="a")
    with pytest.raises(DuplicateMessageError):
        traced.delivery.send("billing", b"", delay=60, message_id="a")
    failed = traced.spans()[1]
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "DuplicateMessageError"
    assert failed.status.status_code is StatusCode.ERROR
    assert [event.name for event in failed.events] == ["exception"]


def test_without_a_provider_a_message_carries_nothing(traced: Traced) -> None:
    delivery = DelayedDelivery("sales", traced.store, observer=OpenTelemetryObserver("sales"))
    delivery.send("billing", b"", delay=60, message_id="a")
    delivery.send_many([message("b")])
    assert [traced.carried(one) for one in ("a", "b")] == [None, None]


def test_a_trace_that_is_not_sampled_is_carried_but_makes_no_spans(traced: Traced) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    observer = OpenTelemetryObserver("sales", tracer_provider=provider)
    DelayedDelivery("sales", traced.store, observer=observer).send("billing", b"", delay=0, message_id="a")
    flags = int(str(traced.carried("a")).rpartition("-")[2], 16)
    assert not flags & TraceFlags.SAMPLED
    traced.dispatch()
    assert traced.spans() == []
    provider.shutdown()


def test_an_awaited_send_is_traced_and_leaves_the_task_s_span_as_it_was(traced: Traced, tmp_path: Path) -> None:
    async def send() -> None:
        store = AsyncSqlDelayedMessageStore(f"sqlite+aiosqlite:///{tmp_path}/app.db")
        async with AsyncDelayedDelivery("sales", store, observer=traced.observer) as delivery:

            async def request(name: str) -> None:
                with traced.tracer.start_as_current_span(name) as span:
                    await delivery.send("billing", b"", delay=60, message_id=name)
                    assert get_current_span() is span
                    await delivery.send_many([message(f"{name}-many")])
                    assert get_current_span() is span

            await asyncio.gather(request("a"), request("b"))
            for name in ("a", "b"):
                found = await delivery.get(name)
                assert found is not None
                carried.append(found.headers["traceparent"])

    carried: list[object] = []
    asyncio.run(send())
    spans = traced.spans()
    requests = {context_of(span).span_id: span.name for span in spans if span.name in ("a", "b")}
    sends = {
        span.attributes["messaging.message.id"]: span
        for span in spans
        if span.name == "send billing" and span.attributes and "messaging.message.id" in span.attributes
    }
    assert {name: requests[span.parent.span_id] for name, span in sends.items() if span.parent} == {"a": "a", "b": "b"}
    assert carried == [header_of(sends["a"]), header_of(sends["b"])]
