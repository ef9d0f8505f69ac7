from typing import ClassVar

import pytest

from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.testing import StoreCapabilities, StoreConformance, StoreFactory


class TestInMemoryStore(StoreConformance):
    capabilities: ClassVar = StoreCapabilities(transactions=True, batches=True, management=True)

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        return InMemoryDelayedMessageStore().share
