"""Metrics and traces with real servers, and at the command line."""

import asyncio
import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from datetime import timedelta

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id
from sqlalchemy.orm import Session

from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore, DelayedDelivery, SqlDelayedMessageStore
from delaystore.message import DelayedMessage
from delaystore.server.telemetry import MetricsServer, OpenTelemetryObserver
from delaystore.transports import RabbitMQTransport
from tests.dispatching import wait_until
from tests.integration.cli import PATIENCE, CommandLine, started


class Spans:
    """A tracer provider, and what it exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans = Spans()
    yield spans
    spans.provider.shutdown()


def span_id(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return format_span_id(context.span_id)


def tell(span: ReadableSpan, attribute: str) -> object:
    """The value of an attribute; None: the span has none."""
    return (span.attributes or {}).get(attribute)


def received_contexts(transport: RabbitMQTransport, count: int) -> dict[str, str]:
    """The span ids in the traceparent headers of what arrives in `billing`, by message_id."""
    found: dict[str, str] = {}
    while len(found) < count:
        with transport.receive("billing", count, timeout=PATIENCE) as messages:
            assert messages
            found |= {one.message_id: str(one.headers["traceparent"]).split("-")[2] for one in messages}
    return found


def test_the_trace_context_crosses_postgresql_and_rabbitmq(
    postgresql_url: str, rabbitmq_url: str, spans: Spans
) -> None:
    observer = OpenTelemetryObserver("sales", tracer_provider=spans.provider)
    store, transport = SqlDelayedMessageStore(postgresql_url), RabbitMQTransport(rabbitmq_url)
    transport.declare("billing")
    with DelayedDelivery("sales", store, transport, observer=observer) as delivery:
        delivery.send("billing", b"", delay=0.2, message_id="plain")
        with Session(store.engine) as session, session.begin():
            delivery.enlist(session).send("billing", b"", delay=0.2, message_id="enlisted")
        due = store.now()
        delivery.send_many(
            DelayedMessage(message_id=f"many-{number}", destination="billing", due_time=due, body=b"")
            for number in range(3)
        )

        async def send_awaited() -> None:
            async with AsyncDelayedDelivery(
                "sales", AsyncSqlDelayedMessageStore(postgresql_url), observer=observer
            ) as awaited:
                await awaited.send("billing", b"", delay=0.2, message_id="awaited")

        asyncio.run(send_awaited())
        contexts = received_contexts(transport, 6)
        wait_until(lambda: len(spans.named("forward billing")) == 6)
    sends = spans.named("send billing")
    ones = {tell(span, "messaging.message.id"): span for span in sends if tell(span, "messaging.message.id")}
    (many,) = (span for span in sends if tell(span, "messaging.batch.message_count"))
    expected = {name: span_id(ones[name]) for name in ("plain", "enlisted", "awaited")}
    assert contexts == expected | {f"many-{number}": span_id(many) for number in range(3)}
    forwards = spans.named("forward billing")
    linked = {tell(span, "messaging.message.id"): format_span_id(span.links[0].context.span_id) for span in forwards}
    assert linked == contexts
    assert all(span.parent is None for span in forwards)


def test_a_program_that_sends_serves_its_metrics(postgresql_url: str) -> None:
    with MetricsServer(port=0) as server:
        observer = server.observer("sales", destinations=1)
        store = SqlDelayedMessageStore(postgresql_url)
        with DelayedDelivery("sales", store, observer=observer) as delivery:
            observer.watch(store)
            store.keep_history(timedelta(days=30))
            delivery.send("billing", b"", delay=60)
            delivery.send("shipping", b"", delay=60)
            text = read(server.url)
    assert value(text, "messaging_client_sent_messages_total", 'messaging_destination_name="billing"') == 1
    assert value(text, "messaging_client_sent_messages_total", 'messaging_destination_name="other"') == 1
    assert value(text, "messaging_client_operation_duration_seconds_count", "") == 1
    assert value(text, "delaystore_backlog", "") == 2
    assert value(text, "delaystore_store_available", "") == 1
    assert value(text, "delaystore_history_kept_seconds", "") == 30 * 86_400
    assert value(text, "delaystore_history_size_bytes", "") >= 0


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        content: bytes = answer.read()
    return content.decode()


def value(text: str, name: str, label: str) -> float:
    """The first sample of that name that has the label."""
    found = re.search(rf"^{name}\{{[^}}]*{re.escape(label)}[^}}]*\}} (\S+)$", text, re.MULTILINE)
    assert found, f"no {name} with {label}:\n{text}"
    return float(found[1])


@pytest.fixture
def environment(sqlite_url: str) -> dict[str, str]:
    """An endpoint in a SQLite file."""
    return {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_TRANSPORT": sqlite_url, "DELAYSTORE_ENDPOINT": "sales"}


def test_a_port_that_is_in_use_is_one_clear_line(run: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = run.refused("dispatch", "--metrics", address)
    assert line == f"error: metrics cannot be served at {address}: Address already in use; give another address"


@pytest.mark.parametrize("address", ["9464", ":9464", "localhost:", "localhost:http", "localhost:70000", "[]:1"])
def test_what_is_no_address_is_one_clear_line(run: CommandLine, address: str) -> None:
    line = run.refused("dispatch", "--metrics", address)
    assert line == f"error: --metrics '{address}' is no address; write HOST:PORT, as in 127.0.0.1:9464"


def test_a_host_that_is_unknown_is_one_clear_line(run: CommandLine) -> None:
    assert run.refused("dispatch", "--metrics", "nosuchhost.invalid:0").startswith(
        "error: metrics cannot be served at "
    )


def test_options_that_do_not_go_together_are_one_clear_line(run: CommandLine) -> None:
    assert run.refused("dispatch", "--metrics-destinations", "3").endswith("needs --metrics HOST:PORT; give both")
    assert "--once" in run.refused("dispatch", "--once", "--metrics", "127.0.0.1:0")


def test_the_command_serves_until_it_is_stopped(environment: dict[str, str]) -> None:
    process = started(["dispatch", "--metrics", "[::1]:0", "--json"], environment)
    assert process.stderr is not None
    url = process.stderr.readline().removeprefix("serving metrics at ").strip()
    assert url.startswith("http://[::1]:")
    assert "dispatching" in process.stderr.readline()
    assert value(read(url), "delaystore_breaker_state", 'delaystore_breaker_name="fetch"') == 0
    process.terminate()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert json.loads(out)["delivered"] == 0
    with pytest.raises(OSError):
        read(url)
