"""What the fault tests share: no traceback of ours in the log, whatever the fault."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from delaystore.transports import Transport, open_transport
from tests.faults.scale import SOAK
from tests.long import long

HERE: Final = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """At full counts every fault test is a long campaign."""
    if SOAK:
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.soak)


@pytest.fixture(autouse=True)
def no_tracebacks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An outage is told in one line; a traceback is a fault nobody foresaw."""
    caplog.set_level(logging.INFO, "delaystore")
    yield
    records = caplog.get_records("call")
    tracebacks = [record.getMessage() for record in records if record.exc_info and record.name.startswith("delaystore")]
    assert not tracebacks, tracebacks


@pytest.fixture(params=["postgresql", long("mariadb"), long("sqlite")])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind; the further ones take long."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def rabbitmq_transport(rabbitmq_url: str) -> Iterator[Transport]:
    """A transport to an empty virtual host, closed after the test."""
    transport = open_transport(rabbitmq_url)
    yield transport
    transport.close()
