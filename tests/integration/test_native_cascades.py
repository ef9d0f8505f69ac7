"""Messages on their way through cascades of a real broker: in time, to their destination alone, and never lost."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V1, NSERVICEBUS_V2, SKIPPING, celery, custom
from tests.integration.cascades import (
    IncomingMessage,
    arrivals,
    channel_to,
    declare,
    leave_only,
    make_destination,
    make_queue,
    ready,
    send,
)
from tests.servers import RabbitMQ
from tests.unit.test_topology import queues_passed

OWN = custom("own", levels=6)
PRESETS = {
    "nservicebus-v2": NSERVICEBUS_V2,
    "nservicebus-v1": NSERVICEBUS_V1,
    "celery": celery(),
    "celery-classic": celery("classic", "classic"),
    "skipping": SKIPPING,
    "custom-ms": custom("ms", levels=14, unit=timedelta(milliseconds=1)),
}
DELAYS = (0, 1, 2, 3, 5, 10)
LATE = 1.5
"""Seconds; a message of these few arrives in less on a machine that is not busy with something else."""
KILLED = 1000
NAMES = ("b", "a.b", "c.a.b", "two words", "münchen.größe", "注文", "0.1.b", "a..b", ".b")


@pytest.fixture(scope="module")
def delayed(rabbitmq: Any) -> Iterator[dict[tuple[str, int], tuple[float, IncomingMessage]]]:
    """For each preset and delay: when the message was sent, and how it arrived. All wait at once."""
    url = rabbitmq.create_vhost()
    try:
        with channel_to(url) as channel:
            for name, topology in PRESETS.items():
                declare(channel, topology.layout())
                make_destination(channel, topology, name)
            sent = {}
            for delay in DELAYS:
                for name, topology in PRESETS.items():
                    sent[name, delay] = time.time()
                    send(channel, topology, delay, name, str(delay).encode())
            found = arrivals(channel, PRESETS, len(sent))
            yield {key: (sent[key], each) for each in found for key in [(each.queue, int(each.body))]}
    finally:
        rabbitmq.delete_vhost(url)


@pytest.mark.parametrize("preset", PRESETS)
def test_messages_arrive_never_early_and_soon(
    delayed: dict[tuple[str, int], tuple[float, IncomingMessage]], preset: str
) -> None:
    """Under 1.5 s late, all presets at once; on an idle machine it is some 10 ms."""
    lateness = {delay: delayed[preset, delay][1].at - delayed[preset, delay][0] - delay for delay in DELAYS}
    assert min(lateness.values()) >= 0, lateness
    assert max(lateness.values()) < LATE, lateness


@pytest.mark.parametrize("preset", PRESETS)
def test_a_message_passes_the_queues_that_its_delay_says(
    delayed: dict[tuple[str, int], tuple[float, IncomingMessage]], preset: str
) -> None:
    """By x-death: its last comes first, but RabbitMQ 3.10 turns round the others at each death."""
    for delay in DELAYS[1:]:
        headers = delayed[preset, delay][1].properties.headers
        passed = queues_passed(PRESETS[preset], delay)
        assert {death["queue"]: (death["count"], death["reason"]) for death in headers["x-death"]} == dict.fromkeys(
            passed, (1, "expired")
        )
        assert (headers["x-first-death-queue"], headers["x-death"][0]["queue"]) == (passed[0], passed[-1])


def test_ten_seconds_are_eight_and_then_two(delayed: dict[tuple[str, int], tuple[float, IncomingMessage]]) -> None:
    headers = delayed["nservicebus-v2", 10][1].properties.headers
    queues = [death["queue"] for death in reversed(headers["x-death"])]
    assert queues == [
        "nsb.v2.delay-level-03",
        "nsb.v2.delay-level-01",
    ]


def test_each_message_reaches_its_own_destination_once_and_no_other(channel: Any) -> None:
    for topology in (OWN, custom("skips", levels=4, skipping=True)):
        declare(channel, topology.layout())
        for name in NAMES:
            make_destination(channel, topology, name)
        for name in NAMES:
            send(channel, topology, 0, name, name.encode())
            send(channel, topology, 1, name, name.encode())
        found = arrivals(channel, NAMES, 2 * len(NAMES))
        time.sleep(0.5)  # for copies that nobody wants
        assert Counter(each.queue for each in found) == dict.fromkeys(NAMES, 2)
        assert all(each.queue.encode() == each.body for each in found)
        assert [ready(channel, name) for name in (*NAMES, topology.undeliverable)] == [0] * (len(NAMES) + 1)


def test_the_binding_of_nservicebus_would_take_what_is_for_others(channel: Any) -> None:
    """Why ours is exact: with `#.b` on the delivery exchange, b gets the messages for a.b as well."""
    declare(channel, OWN.layout())
    make_destination(channel, OWN, "a.b")
    make_queue(channel, "b")
    channel.queue_bind("b", OWN.delivery, "#.b")
    send(channel, OWN, 0, "a.b", b"")
    assert {each.queue for each in arrivals(channel, ["b", "a.b"], 2)} == {"b", "a.b"}


@pytest.mark.long_runs(after=1)
@pytest.mark.parametrize("skipping", [False, True])
def test_what_has_no_destination_is_kept_apart_and_holds_nobody_up(channel: Any, skipping: bool) -> None:
    topology = custom("own", levels=3, skipping=skipping)
    declare(channel, topology.layout())
    make_destination(channel, topology, "good")
    for number in range(500):
        send(channel, topology, 1 + number % 3, "nobody", b"lost")
        if number % 5 == 0:
            send(channel, topology, 1 + number % 3, "good", b"good")
    assert {each.body for each in arrivals(channel, ["good"], 100)} == {b"good"}
    undeliverable = topology.undeliverable
    assert undeliverable is not None
    leave_only(channel, undeliverable, 500)
    send(channel, topology, 1, "good", b"after them")
    assert [each.body for each in arrivals(channel, ["good"], 1)] == [b"after them"]
    assert ready(channel, undeliverable) == 500


@pytest.mark.long
def test_a_killed_broker_loses_no_message_in_the_levels(private_rabbitmq: RabbitMQ) -> None:
    topology = custom("killed", levels=4)
    with channel_to(private_rabbitmq.url) as channel:
        declare(channel, topology.layout())
        make_destination(channel, topology, "survivor")
        private_rabbitmq.sync_queues()
        for number in range(KILLED):
            send(channel, topology, 5 + number % 8, "survivor", str(number).encode())
        waiting = sum(ready(channel, topology.level(level)) for level in range(4))
        assert waiting > KILLED / 2
        private_rabbitmq.kill()
    private_rabbitmq.start()
    with channel_to(private_rabbitmq.url) as channel:
        missing = set(range(KILLED))
        while missing:  # some may come twice
            missing -= {int(each.body) for each in arrivals(channel, ["survivor"], len(missing))}
