from functools import partial

import pytest

from delaystore.testing import StoreConformance, StoreFactory
from tests.conformance.minimal_store import MinimalStore, Storage


class TestMinimalStore(StoreConformance):
    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        return partial(MinimalStore, Storage())
