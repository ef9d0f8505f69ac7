"""What the tests of the web page share."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from delaystore.delivery import DelayedDelivery
from tests.conftest import ENVIRONMENT
from tests.servers import ServerMissingError
from tests.web.chromium import chromium
from tests.web.pages import new_delivery


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with chromium() as browser:
            yield browser
    except ServerMissingError as error:
        if ENVIRONMENT.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def delivery() -> Iterator[DelayedDelivery]:
    delivery = new_delivery()
    yield delivery
    delivery.close()
