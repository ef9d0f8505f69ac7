"""RabbitMQ ends the channel of whoever keeps a message unacknowledged for longer than its consumer_timeout."""

import time

import pytest

from delaystore.ingress import _entries
from tests.faults.patience import wait_until
from tests.ingress.ground import LONG, QUEUE, REJECTED, Ground, await_settled, endpoint, running
from tests.servers import RabbitMQ

SECONDS = 4


def fill_rejected(ground: Ground) -> None:
    """Have the rejected queue take nothing."""
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    ground.channel.queue_declare(REJECTED, durable=True, arguments=full)
    ground.channel.basic_publish("", REJECTED, b"in the way")


@pytest.mark.long
def test_what_is_unacknowledged_for_long_goes_back_and_the_channel_stays(
    private_rabbitmq: RabbitMQ,
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(_entries, "_LONGEST", 1.0)
    url = private_rabbitmq.create_vhost()
    with private_rabbitmq.consumer_timeout(SECONDS), Ground(url) as ground, endpoint(sqlite_url) as delivery:
        fill_rejected(ground)
        with running(delivery, url) as ingress:
            ground.publish(b"bad", delay="soon")
            until, good = time.monotonic() + 2.5 * SECONDS, 0
            while time.monotonic() < until:
                ground.publish(b"good", delay=LONG)
                good += 1
                await_settled(ingress, good)
                ground.connection.sleep(0.1)
            assert "consuming orders.ingress fails" not in caplog.text
            wait_until(lambda: ingress.health().unacknowledged == 1, "it came again")
            assert ground.drain(REJECTED) == [b"in the way"]
            await_settled(ingress, good + 1)
        assert ground.drain(REJECTED) == [b"bad"]
        assert delivery.count() == good


@pytest.mark.long
def test_a_channel_that_is_ended_is_told_and_replaced(private_rabbitmq: RabbitMQ, sqlite_url: str) -> None:
    url = private_rabbitmq.create_vhost()
    with private_rabbitmq.consumer_timeout(1), Ground(url) as ground, endpoint(sqlite_url) as delivery:
        fill_rejected(ground)
        with running(delivery, url) as ingress:
            ground.publish(b"bad", delay="soon")
            wait_until(lambda: "delivery acknowledgement" in str(ingress.health().obstacle), "why is told")
            assert not ingress.health().healthy
            ground.publish(b"good", delay=LONG)
            await_settled(ingress, 1)
            ground.drain(REJECTED)
            await_settled(ingress, 2)
            wait_until(lambda: ingress.health().healthy, "it is well again")
        assert ground.depth(QUEUE) == 0
        assert ground.drain(REJECTED) == [b"bad"]
