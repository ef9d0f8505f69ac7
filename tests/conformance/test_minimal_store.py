from collections.abc import Callable
from functools import partial
from typing import ClassVar

import pytest

from delaystore.testing import StoreCapabilities, StoreConformance, StoreFactory
from tests.conformance.minimal_store import MinimalStore, Storage


# it waits for seconds; on PostgreSQL it runs always
@pytest.mark.long_tests("test_an_id_that_stays_claimed_is_told_apart_from_one_that_waits")
class TestMinimalStore(StoreConformance):
    capabilities: ClassVar = StoreCapabilities(ending_leases=True)

    @pytest.fixture
    def storage(self) -> Storage:
        return Storage()

    @pytest.fixture
    def store_factory(self, storage: Storage) -> StoreFactory:
        return partial(MinimalStore, storage)

    @pytest.fixture
    def end_leases(self, storage: Storage) -> Callable[[], None]:
        return storage.end_leases
