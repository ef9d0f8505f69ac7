"""Calls in progress: who waits for what, and how it ends."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from delaystore import calls
from delaystore.calls import Call, Question, StopFlag, call_paused, current_call
from delaystore.errors import DuplicateMessageError, StoreUnavailableError
from tests.dispatching import wait_until


class Wire:
    """What a call waits for; `ended` once it was cut."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.ended = threading.Event()

    def ask_to_end(self) -> None:
        self.did.append("asked")

    def cut(self) -> None:
        self.did.append("cut")
        self.ended.set()

    def release(self) -> None:
        self.did.append("released")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(calls, "CUT_AFTER", 0.3)
    yield
    assert current_call() is None


def test_the_server_is_asked_first_and_then_the_wait_is_cut() -> None:
    wire = Wire()
    with pytest.raises(StoreUnavailableError, match=r"not answered within 0\.1 s"), Call("waiting", 0.1) as call:
        call.wait_for(wire)
        assert wire.ended.wait(30)
        raise StoreUnavailableError("the connection was lost")
    assert wire.did == ["asked", "cut", "released"]


def test_what_a_call_that_is_overdue_turns_to_is_cut_at_once() -> None:
    first, second = Wire(), Wire()
    with pytest.raises(StoreUnavailableError, match="not answered"), Call("waiting", 0.1) as call:
        call.wait_for(first)
        wait_until(lambda: first.did, "the server is asked")
        call.wait_for(second)
        raise StoreUnavailableError("the connection was lost")
    assert second.did == ["cut", "released"]


def test_what_ends_in_time_is_let_alone() -> None:
    wire = Wire()
    with Call("waiting", 60) as call:
        call.wait_for(wire)
    with pytest.raises(DuplicateMessageError), Call("waiting", 0.1) as call:
        wait_until(lambda: call.overdue, "it is overdue")
        raise DuplicateMessageError(["it was stored nevertheless"])
    assert wire.did == ["released"]


def test_what_is_done_elsewhere_is_no_part_of_a_call() -> None:
    with Call("a pass", 0.3) as call:
        for _ in range(2):
            with call_paused():
                assert current_call() is None
                time.sleep(0.6)  # longer than the call may take
            assert current_call() is call
        assert not call.overdue
    with call_paused():
        assert current_call() is None


def test_a_question_without_an_answer_ends_for_who_asks_and_then_for_itself() -> None:
    wire = Wire()

    def ask() -> int:
        call = current_call()
        assert call is not None
        call.wait_for(wire)
        wire.ended.wait(30)
        raise StoreUnavailableError("the connection was lost")

    question = Question("asking", ask, 0.2)
    with pytest.raises(StoreUnavailableError, match=r"does not answer within 0\.2 s"):
        question.answer()
    assert question.too_late
    wait_until(lambda: not question.open, "its thread ends")
    assert Question("asking", lambda: 7, 30).answer() == 7


def test_a_forked_child_watches_its_own_calls() -> None:
    with Call("the parent's", 60):
        child = os.fork()
        if child == 0:
            wire = Wire()
            call = Call("the child's", 0.1)
            call.__enter__()
            call.wait_for(wire)
            os._exit(0 if wire.ended.wait(30) else 1)
        _, status = os.waitpid(child, 0)
    assert status == 0


def test_whoever_waits_goes_on_once_it_is_set() -> None:
    flag = StopFlag()
    assert not flag.wait(0.01)
    setting = threading.Timer(0.05, flag.set)
    setting.start()
    assert flag.wait(30)
    assert flag.is_set()
    setting.join()


def test_a_signal_handler_may_set_it_wherever_it_interrupts_the_thread_that_waits() -> None:
    flags = [StopFlag()]
    before = signal.signal(signal.SIGALRM, lambda *_: flags[0].set())
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            flags[0] = StopFlag()
            flags[0].wait(0.0005)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
