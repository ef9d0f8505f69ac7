"""A process that uses delaystore forks: parent and child both go on."""

import os
import signal
import traceback
from collections.abc import Callable

from delaystore.delivery import DelayedDelivery
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import Transport, open_transport
from tests.faults.arrivals import assert_arrived, drain
from tests.faults.backlog import DESTINATION, ENDPOINT
from tests.faults.patience import wait_until

CHILDREN = 3
EACH = 100


def fork(work: Callable[[], None]) -> int:
    """Run `work` in a forked child; its process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(60)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def assert_ended_well(pid: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def numbered(child: int) -> list[str]:
    return [f"{child}-{number}" for number in range(EACH)]


def send_numbered(delivery: DelayedDelivery, child: int) -> None:
    for message_id in numbered(child):
        delivery.send(DESTINATION, b"x", delay=0, message_id=message_id)


def test_parent_and_children_send_while_the_parent_dispatches(
    postgresql_url: str, rabbitmq_url: str, rabbitmq_transport: Transport
) -> None:
    rabbitmq_transport.declare(DESTINATION)
    store, transport = SqlDelayedMessageStore(postgresql_url), open_transport(rabbitmq_url)
    with DelayedDelivery(ENDPOINT, store, transport) as delivery:
        send_numbered(delivery, 0)
        children = [fork(lambda child=child: send_numbered(delivery, child)) for child in range(1, CHILDREN + 1)]  # type: ignore[misc]
        send_numbered(delivery, CHILDREN + 1)
        for pid in children:
            assert_ended_well(pid)
        wait_until(lambda: delivery.count() == 0, "everything is forwarded")
    sent = [message_id for child in range(CHILDREN + 2) for message_id in numbered(child)]
    assert_arrived(drain(rabbitmq_transport, DESTINATION), sent)


def test_a_child_dispatches_as_well(postgresql_url: str, rabbitmq_url: str, rabbitmq_transport: Transport) -> None:
    rabbitmq_transport.declare(DESTINATION)
    store, transport = SqlDelayedMessageStore(postgresql_url), open_transport(rabbitmq_url)
    delivery = DelayedDelivery(ENDPOINT, store, transport)

    def dispatch_and_send() -> None:
        delivery.start()
        send_numbered(delivery, 1)
        wait_until(lambda: delivery.count() == 0, "everything is forwarded")
        assert delivery.health().running
        delivery.close()

    with delivery:
        send_numbered(delivery, 0)
        child = fork(dispatch_and_send)
        send_numbered(delivery, 2)
        assert_ended_well(child)
        wait_until(lambda: delivery.count() == 0, "everything is forwarded")
        assert delivery.health().running
        sent = [message_id for child in range(3) for message_id in numbered(child)]
    assert_arrived(drain(rabbitmq_transport, DESTINATION), sent)
