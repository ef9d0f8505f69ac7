"""Trace a message across its delay: the span that forwards it links to the span that sent it.

Run it with `python examples/traced_sending.py`. Instead of printing spans, export them, as with
`opentelemetry-exporter-otlp`; `docs/reference/metrics.md` has the metrics, too.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.server.telemetry import OpenTelemetryObserver
from delaystore.transports import SqlQueueTransport


class Printing(SpanExporter):
    """Prints each span, and which span it links to."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Print `spans`."""
        for span in spans:
            context = span.get_span_context()
            if context is not None:
                self._names[context.span_id] = span.name
            links = [self._names[link.context.span_id] for link in span.links]
            print(span.name, *(f"-> {name}" for name in links))
        return SpanExportResult.SUCCESS


def main() -> None:
    """Send a message inside a request, and wait until it has arrived."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Printing()))
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{Path(directory) / 'app.db'}"
        queues = SqlQueueTransport(url)
        queues.declare("billing")
        observer = OpenTelemetryObserver("sales", tracer_provider=provider)
        with DelayedDelivery("sales", SqlDelayedMessageStore(url), queues, observer=observer) as delivery:
            with provider.get_tracer("shop").start_as_current_span("POST /orders"):
                delivery.send("billing", b"pay me", delay=0.3)
            with queues.receive("billing", timeout=30) as (message,):
                received = message
    print("received:", received.body.decode(), sorted(received.headers))
    provider.shutdown()


if __name__ == "__main__":
    main()
