"""What somebody sets to have another stop, be it in a signal handler."""

import signal
import threading
import time

from delaystore.calls import StopFlag


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
