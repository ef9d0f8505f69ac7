"""How a peer ends: at SIGTERM, between two batches."""

import signal
import threading


def stop_requests() -> threading.Event:
    """An event that SIGTERM sets."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    return stopped
