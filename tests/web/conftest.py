"""What the tests of the web page share."""

from collections.abc import Iterator

import pytest

from delaystore.delivery import DelayedDelivery
from tests.web.pages import new_delivery


@pytest.fixture
def delivery() -> Iterator[DelayedDelivery]:
    delivery = new_delivery()
    yield delivery
    delivery.close()
