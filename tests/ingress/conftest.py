"""The ground that ingresses are tested on."""

from collections.abc import Iterator

import pytest

from tests.faults.scale import SOAK
from tests.ingress.ground import Ground

CAMPAIGNS = ("test_faults.py", "test_campaign.py", "test_interleavings.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """At full counts these are long campaigns."""
    if SOAK:
        for item in items:
            if item.path.name in CAMPAIGNS and item.path.parent.name == "ingress":
                item.add_marker(pytest.mark.soak)


@pytest.fixture
def ground(rabbitmq_url: str) -> Iterator[Ground]:
    """An exchange with its ingress, in an empty virtual host."""
    with Ground(rabbitmq_url) as ground:
        yield ground
