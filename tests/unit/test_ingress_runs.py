"""Beginning and ending an ingress whose broker is not there."""

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from delaystore import DelayedDelivery
from delaystore.ingress.ingress import Ingress
from delaystore.ingress.reading.destinations import FixedDestination
from delaystore.ingress.reading.reader import ReadingRules
from delaystore.ingress.settings import IngressSettings
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.transports.rabbitmq.properties import check_message

NOBODY = "amqp://127.0.0.1:1"
PATIENCE = 30.0


@pytest.fixture
def ingress() -> Iterator[Ingress]:
    rules = ReadingRules(ingress_queue="orders", destination=FixedDestination("billing"), check=check_message)
    with DelayedDelivery("sales", InMemoryDelayedMessageStore()) as delivery:
        yield Ingress(delivery, NOBODY, rules, IngressSettings(queue="orders"))


def test_where_no_thread_is_to_be_had_it_can_be_started_again(
    ingress: Ingress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="cannot start a thread for the ingress queue 'orders'"):
            ingress.start()
    assert not ingress.health().running
    assert ingress.stop(PATIENCE)
    ingress.start()
    assert ingress.health().running
    assert ingress.stop(PATIENCE)
    assert not ingress.health().running


def test_a_signal_handler_may_stop_what_runs_in_its_thread(ingress: Ingress) -> None:
    answers: list[bool] = []

    def stop(_number: int, _frame: FrameType | None) -> None:
        answers.append(ingress.stop())

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        ingress.run()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert answers == [False]
    assert ingress.stop()
