"""What is critical in a service is logged once for a reason."""

import io
import logging
from collections.abc import Iterator

import pytest

from delaystore.breakers import report_critical_error
from delaystore.errors import StoreUnavailableError
from delaystore.server.running import CriticalOnce


@pytest.fixture
def log() -> Iterator[tuple[io.StringIO, list[float]]]:
    """What is logged, and the time, to be set."""
    written, now = io.StringIO(), [0.0]
    handler = logging.StreamHandler(written)
    handler.addFilter(CriticalOnce(lambda: now[0]))
    logger = logging.getLogger("delaystore.dispatcher")
    logger.addHandler(handler)
    yield written, now
    logger.removeHandler(handler)


def test_each_part_tells_of_one_failure_and_it_is_logged_once(log: tuple[io.StringIO, list[float]]) -> None:
    written, now = log
    refused = StoreUnavailableError("the database refuses the login")
    for part in ("fetching due messages", "storing what is published", "answering requests"):
        report_critical_error(None, f"{part} has failed for 30 s", refused)
        logging.getLogger("delaystore.dispatcher").warning("%s fails: %s", part, refused)
    report_critical_error(None, "forwarding has failed for 30 s", StoreUnavailableError("no such host"))
    lines = written.getvalue().splitlines()
    assert [line for line in lines if "has failed" in line] == [
        "fetching due messages has failed for 30 s: the database refuses the login",
        "forwarding has failed for 30 s: no such host",
    ]
    assert sum(" fails: " in line for line in lines) == 3
    now[0] = 61.0
    report_critical_error(None, "storing has failed for 30 s", refused)
    assert written.getvalue().endswith("storing has failed for 30 s: the database refuses the login\n")
