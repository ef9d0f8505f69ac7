"""`delaystore ingress replay`: rejected messages published again."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from delaystore import RabbitMQTransport
from delaystore.errors import TransportSetupError
from delaystore.ingress.rejected import retry_rejected
from delaystore.transports.rabbitmq.publisher import BatchPublisher
from tests.ingress.ground import LONG, QUEUE, REJECTED, Ground, await_settled, endpoint, running
from tests.integration.cli import CommandLine

LARGEST = 10
"""Bytes of a body that the ingress takes while it rejects the others."""


@pytest.fixture
def environment(ground: Ground) -> dict[str, str]:
    return {"DELAYSTORE_BROKER": ground.url}


def reject(ground: Ground, store_url: str, publish: Callable[[], None], count: int) -> None:
    with endpoint(store_url, max_body_bytes=LARGEST) as delivery, running(delivery, ground.url) as ingress:
        publish()
        await_settled(ingress, count)
        assert ingress.health().rejected == count


def too_large(ground: Ground, count: int, **more: Any) -> Callable[[], None]:
    def publish() -> None:
        for number in range(count):
            ground.publish(b"x" * 20, delay=LONG, message_id=f"m{number}", **more)

    return publish


def test_each_is_taken_in_as_it_was_once_the_cause_is_gone(ground: Ground, sqlite_url: str, run: CommandLine) -> None:
    more = {"headers": {"tenant": "a", "price": 3}, "expiration": "7200000", "priority": 4, "key": "invoice.late"}
    reject(ground, sqlite_url, too_large(ground, 3, **more), 3)
    result = run("ingress", "replay", REJECTED)
    assert result.code == 0, result.err
    assert result.out == f"3 messages of 3 in '{REJECTED}' published again\n"
    assert ground.depth(REJECTED) == 0
    with endpoint(sqlite_url) as delivery, running(delivery, ground.url) as ingress:
        await_settled(ingress, 3)
        message = delivery.get("m1")
    assert message is not None
    assert message.destination.endswith("invoice.late")
    assert message.properties["priority"] == 4
    assert message.properties["expiration"] == "7200000"
    assert {name: value for name, value in message.headers.items() if not name.startswith("x-delay")} == {
        "tenant": "a",
        "price": 3,
    }


def test_what_is_rejected_anew_does_not_go_round(ground: Ground, sqlite_url: str, run: CommandLine) -> None:
    reject(ground, sqlite_url, too_large(ground, 5), 5)
    with endpoint(sqlite_url, max_body_bytes=LARGEST) as delivery, running(delivery, ground.url) as ingress:
        assert run("ingress", "replay", REJECTED, "--json").document["published"] == 5
        await_settled(ingress, 5)
        assert ingress.health().rejected == 5
    assert ground.depth(REJECTED) == 5


def test_one_is_chosen_by_its_id(ground: Ground, sqlite_url: str, run: CommandLine) -> None:
    reject(ground, sqlite_url, too_large(ground, 3), 3)
    result = run("ingress", "replay", REJECTED, "m1")
    assert result.code == 0, result.err
    assert result.out == f"1 message of 3 in '{REJECTED}' published again\n"
    await_depth(ground, REJECTED, 2)
    assert ground.depth(QUEUE) == 1
    again = run("ingress", "replay", REJECTED, "m1")
    assert again.code == 1
    assert f"not found: no message 'm1' is in '{REJECTED}'" in again.err


def test_those_of_one_reason_are_chosen(ground: Ground, sqlite_url: str, run: CommandLine) -> None:
    def publish() -> None:
        too_large(ground, 3)()
        ground.publish(b"x", delay="abc", message_id="unreadable")

    reject(ground, sqlite_url, publish, 4)
    (reason,) = {
        group["reason"]
        for group in run("errors", "list", "--error-queue", REJECTED, "--transport", ground.url, "--json").document[
            "groups"
        ]
        if group["count"] == 3
    }
    document = run("ingress", "replay", REJECTED, "--reason", reason, "--json").document
    assert (document["published"], document["passed_over"], document["stayed"]) == (3, 1, {})
    await_depth(ground, REJECTED, 1)
    assert ground.depth(QUEUE) == 3


def test_a_dry_run_changes_nothing(ground: Ground, sqlite_url: str, run: CommandLine) -> None:
    reject(ground, sqlite_url, too_large(ground, 250), 250)
    result = run("ingress", "replay", REJECTED, "--dry-run")
    assert result.code == 0
    assert result.out == f"250 messages of 250 in '{REJECTED}' would be published again\n"
    assert ground.depth(QUEUE) == 0
    await_depth(ground, REJECTED, 250)


def test_what_cannot_be_published_stays_and_why_is_told(ground: Ground, sqlite_url: str, run: CommandLine) -> None:
    reject(ground, sqlite_url, too_large(ground, 2), 2)
    ground.channel.basic_publish("", REJECTED, b"of somebody else")
    ground.channel.queue_unbind(QUEUE, "orders", "#")
    result = run("ingress", "replay", REJECTED)
    assert result.code == 1
    assert "0 messages of 3" in result.out
    assert "2 stay: the exchange 'orders' did not take it" in result.err
    assert "1 stay: no ingress has rejected it" in result.err
    await_depth(ground, REJECTED, 3)
    ground.channel.queue_bind(QUEUE, "orders", "#")
    assert run("ingress", "replay", REJECTED).code == 1
    await_depth(ground, REJECTED, 1)
    assert ground.depth(QUEUE) == 2


@pytest.mark.parametrize(
    "header",
    [
        {"delaystore.expiration": "9" * 300},
        {"delaystore.expiration": "soon"},
        {"delaystore.expiration": "4294967296"},
        {"delaystore.bcc": [1]},
        {"delaystore.cc": "no list"},
    ],
)
def test_headers_of_ours_that_somebody_else_set_hold_up_nothing(
    ground: Ground, sqlite_url: str, run: CommandLine, header: dict[str, Any]
) -> None:
    def publish() -> None:
        too_large(ground, 1)()
        ground.publish(b"x" * 20, delay=LONG, message_id="hostile", headers=header)
        too_large(ground, 2)()

    reject(ground, sqlite_url, publish, 4)
    result = run("ingress", "replay", REJECTED)
    refused = "delaystore.cc" in header
    assert result.out == f"{4 - refused} messages of 4 in '{REJECTED}' published again\n"
    assert ("1 stay: the exchange 'orders' did not take it" in result.err) == refused
    assert ground.depth(QUEUE) >= 4 - refused  # what was not confirmed when the channel closed was published once more


def test_who_asks_to_stop_finds_the_rest_in_the_queue(ground: Ground, sqlite_url: str) -> None:
    reject(ground, sqlite_url, too_large(ground, 600), 600)
    result = retry_rejected(RabbitMQTransport(ground.url).broker, REJECTED, stopping=lambda: True)
    assert result.stopped
    assert 0 < result.published < 600
    await_depth(ground, REJECTED, 600 - result.published)
    assert ground.depth(QUEUE) == result.published


def test_nothing_leaves_the_queue_before_it_is_confirmed(
    ground: Ground, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reject(ground, sqlite_url, too_large(ground, 3), 3)

    def die(_publisher: BatchPublisher, _copies: Sequence[Any], _timeout: float) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchPublisher, "publish", die)
    with pytest.raises(KeyboardInterrupt):
        retry_rejected(RabbitMQTransport(ground.url).broker, REJECTED)
    await_depth(ground, REJECTED, 3)


def test_two_at_once_publish_each_message_once(ground: Ground, sqlite_url: str) -> None:
    reject(ground, sqlite_url, too_large(ground, 500), 500)
    results = []

    def work() -> None:
        results.append(retry_rejected(RabbitMQTransport(ground.url).broker, REJECTED))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(result.published for result in results) == 500
    assert ground.depth(QUEUE) == 500


def test_mistakes_are_told_in_a_line(run: CommandLine, ground: Ground) -> None:
    assert "there is no queue 'orders.rejected'" in run.refused("ingress", "replay", "orders.rejected")
    with pytest.raises(TransportSetupError):
        retry_rejected(RabbitMQTransport(ground.url).broker, "nothing")
    ground.channel.queue_declare(REJECTED, durable=True, arguments={"x-queue-type": "quorum"})
    assert run("ingress", "replay", REJECTED).out == f"0 messages of 0 in '{REJECTED}' published again\n"


def await_depth(ground: Ground, queue: str, count: int) -> None:
    """What was taken goes back a moment after the consumer's end."""
    deadline = time.monotonic() + 15
    while ground.depth(queue) != count and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ground.depth(queue) == count
