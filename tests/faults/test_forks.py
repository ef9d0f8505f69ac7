"""A process that uses delaystore forks: parent and child both go on."""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from delaystore import processes
from delaystore.delivery import DelayedDelivery
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import Transport, open_transport
from tests.faults.arrivals import assert_arrived, drain
from tests.faults.backlog import DESTINATION, ENDPOINT, message, messages, open_store
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
        wait_until(lambda: os.getpid() in beating(store), "the child's dispatcher is known")
        delivery.close()

    with delivery:
        send_numbered(delivery, 0)
        child = fork(dispatch_and_send)
        send_numbered(delivery, 2)
        assert_ended_well(child)
        wait_until(lambda: delivery.count() == 0, "everything is forwarded")
        assert delivery.health().running
        assert beating(store) == {os.getpid()}, "the child's has retired"
        sent = [message_id for child in range(3) for message_id in numbered(child)]
    assert_arrived(drain(rabbitmq_transport, DESTINATION), sent)


def beating(store: SqlDelayedMessageStore) -> set[int]:
    """The processes of dispatchers that live."""
    return {each.pid for each in store.dispatchers()}


@contextmanager
def in_a_thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` in another thread; its event says that it is to end."""
    end = threading.Event()
    thread = threading.Thread(target=work, args=(end,))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def test_children_write_to_sqlite_though_they_were_forked_while_another_thread_writes(sqlite_url: str) -> None:
    store = open_store(f"{sqlite_url}?timeout=5")

    def write(end: threading.Event) -> None:
        while not end.is_set():
            store.store_many(messages(50))

    with in_a_thread(write):
        for _ in range(20):
            assert_ended_well(fork(lambda: store.store(message())))
    store.close()


def test_a_fork_waits_for_the_end_of_another_threads_transaction(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(f"{sqlite_url}?timeout=5")
    began, forks_now = threading.Event(), threading.Event()
    os.register_at_fork(before=forks_now.set)

    def write(_end: threading.Event) -> None:
        with store.transaction() as transaction:
            transaction.store(message(message_id="a"))
            began.set()
            assert forks_now.wait(60)

    with in_a_thread(write):
        assert began.wait(60)
        child = fork(lambda: store.store(message(message_id="b")))
    assert_ended_well(child)
    assert store.count() == 2
    assert not caplog.records
    store.close()


@pytest.mark.parametrize("in_other_thread", [False, True])
def test_a_fork_does_not_wait_for_ever_and_says_what_is_wrong(
    sqlite_url: str, in_other_thread: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(sqlite_url)
    began = threading.Event()

    def write(end: threading.Event) -> None:
        with store.transaction() as transaction:
            transaction.store(message())
            began.set()
            assert end.wait(60)

    if in_other_thread:
        monkeypatch.setattr(processes, "LONGEST_HOLD", 0.2)
        with in_a_thread(write):
            assert began.wait(60)
            child = fork(lambda: None)
    else:
        with store.transaction() as transaction:
            transaction.store(message())
            child = fork(lambda: None)
    assert_ended_well(child)
    assert "forked in the middle of a write to SQLite" in caplog.text
    assert store.count() == 1
    store.close()
