"""A rejected queue that does not answer costs good messages next to nothing."""

import time

import pytest

from tests.faults.patience import wait_until
from tests.ingress.ground import LONG, QUEUE, REJECTED, Ground, await_settled, endpoint, running
from tests.long import long
from tests.servers import RabbitMQ

BAD = 3


@pytest.mark.parametrize("queue_type", ["quorum", long("classic")])
def test_good_messages_go_on_and_each_copy_arrives_once(
    private_rabbitmq: RabbitMQ, postgresql_url: str, queue_type: str
) -> None:
    url = private_rabbitmq.create_vhost()
    with Ground(url) as ground, endpoint(postgresql_url) as delivery:
        ground.channel.queue_declare(REJECTED, durable=True, arguments={"x-queue-type": queue_type})
        with running(delivery, url) as ingress:
            ground.publish(b"bad", delay="soon")
            await_settled(ingress, 1)
            private_rabbitmq.suspend_queue(url, REJECTED)
            ground.publish(b"bad", delay="soon")
            wait_until(lambda: ingress.health().unacknowledged == 1, "it is unacknowledged")
            began = time.monotonic()
            for number in range(BAD):
                ground.publish(b"bad", delay="soon")
                ground.publish(b"good", delay=LONG)
                await_settled(ingress, number + 2)
            assert time.monotonic() - began < 10, "each try took fifteen seconds"
            wait_until(lambda: ingress.health().unacknowledged == BAD + 1, "all bad ones are unacknowledged")
            assert "takes no rejected messages" in str(ingress.health().problems)
            private_rabbitmq.resume_queue(url, REJECTED)
            await_settled(ingress, 2 + 2 * BAD)
            wait_until(lambda: ingress.health().healthy, "all is well")
        assert ground.drain(REJECTED) == [b"bad"] * (BAD + 2)
        assert ground.depth(QUEUE) == 0


@pytest.mark.long
@pytest.mark.parametrize("queue_type", [long("quorum"), "classic"])
def test_an_ingress_begins_although_the_rejected_queue_answers_nothing(
    private_rabbitmq: RabbitMQ, sqlite_url: str, queue_type: str
) -> None:
    url = private_rabbitmq.create_vhost()
    with Ground(url) as ground, endpoint(sqlite_url) as delivery:
        ground.channel.queue_declare(REJECTED, durable=True, arguments={"x-queue-type": queue_type})
        private_rabbitmq.suspend_queue(url, REJECTED)
        ground.publish(b"bad", delay="soon")
        ground.publish(b"good", delay=LONG)
        with running(delivery, url) as ingress:
            await_settled(ingress, 1)
            private_rabbitmq.resume_queue(url, REJECTED)
            await_settled(ingress, 2)
