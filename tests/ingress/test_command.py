"""`delaystore ingress run`, as its user runs it."""

import json
import signal

import pytest

from tests.faults.patience import wait_until
from tests.ingress.ground import LONG, QUEUE, Ground, endpoint
from tests.integration.cli import PATIENCE, CommandLine, first_line_of, started


@pytest.fixture
def environment(sqlite_url: str, rabbitmq_url: str) -> dict[str, str]:
    """Names a store, a broker and an endpoint."""
    return {"DELAYSTORE_STORE": sqlite_url, "DELAYSTORE_BROKER": rabbitmq_url, "DELAYSTORE_ENDPOINT": "sales"}


@pytest.mark.long_runs("2")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_takes_messages_in_until_it_is_stopped(
    environment: dict[str, str], ground: Ground, sqlite_url: str, number: signal.Signals
) -> None:
    process = started(["ingress", "run", "orders", "--json"], environment)
    try:
        assert first_line_of(process) == f"consuming {QUEUE!r} for endpoint 'sales'\n"
        ground.publish(b"pay", delay=LONG, message_id="invoice-7")
        ground.publish(b"pay", delay=LONG, message_id="invoice-7")
        ground.publish(b"bad", delay="soon")
        with endpoint(sqlite_url) as delivery:
            wait_until(lambda: delivery.count() == 1 and ground.depth(f"{QUEUE}.rejected") == 1, "all have a result")
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0
    document = json.loads(out)
    assert (document["stored"], document["duplicate"], document["rejected"]) == (1, 1, 1)
    assert err.splitlines()[-1] == "stopped: 1 stored, 1 were in the store already, 1 rejected"
    assert "Traceback" not in err


def test_messages_may_not_name_the_error_queue_of_the_endpoint(environment: dict[str, str], ground: Ground) -> None:
    named = environment | {"DELAYSTORE_ERROR_QUEUE": "/queues/failed.orders"}
    process = started(["ingress", "run", "orders", "--destination", "header", "--json"], named)
    try:
        assert first_line_of(process).startswith("consuming")
        for to in ("failed.orders", "/queues/failed.orders", "sales.control", "billing"):
            ground.publish(b"pay", delay=LONG, headers={"delaystore.destination": to})
        wait_until(lambda: ground.depth(QUEUE) == 0 and ground.depth(f"{QUEUE}.rejected") == 3, "all have a result")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    document = json.loads(out)
    assert (document["stored"], document["rejected"]) == (1, 3)


def test_it_stops_while_it_waits_for_a_server(environment: dict[str, str]) -> None:
    nobody = environment | {"DELAYSTORE_BROKER": "amqp://127.0.0.1:1/"}
    process = started(["ingress", "run", "orders"], nobody)
    try:
        assert first_line_of(process).startswith("waiting for the broker: ")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0
    assert err == "stopped: 0 stored\n"


def test_without_a_queue_it_says_what_to_run(run: CommandLine) -> None:
    result = run("ingress", "run", "orders")
    assert result.code != 0
    (line,) = result.err.splitlines()
    assert "there is no queue 'orders.ingress'" in line
    assert "delaystore ingress create" in line


def test_it_waits_for_a_broker_or_ends(run: CommandLine) -> None:
    result = run("ingress", "run", "orders", "--broker", "amqp://127.0.0.1:1/", "--fail-fast")
    assert result.code != 0
    (line,) = result.err.splitlines()
    assert "cannot be reached" in line


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "(EXCHANGE)"),
        (("orders", "--delay-headers", "x-delays"), "--delay-headers 'x-delays' is no delay form"),
        (("orders", "--on-duplicate", "ask"), "--on-duplicate"),
        (("orders", "--count-from", "birth"), "--count-from must be one of received, sent, taken"),
        (("orders", "--direct-below", "soon"), "--direct-below"),
        (("orders", "--prefetch", "0"), "--prefetch must be a whole number"),
        (("orders", "--max-body-bytes", "0"), "--max-body-bytes must be a whole number"),
        (("--queue", "q", "--destination", "/nowhere/x"), "--destination"),
        (("orders", "--broker", "http://localhost"), "amqp"),
    ],
)
def test_mistakes(run: CommandLine, arguments: tuple[str, ...], text: str) -> None:
    assert text in run.refused("ingress", "run", *arguments)
