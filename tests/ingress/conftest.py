"""The ground that ingresses are tested on."""

from collections.abc import Iterator

import pytest

from tests.ingress.ground import Ground


@pytest.fixture
def ground(rabbitmq_url: str) -> Iterator[Ground]:
    """An exchange with its ingress, in an empty virtual host."""
    with Ground(rabbitmq_url) as ground:
        yield ground
