from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar

import pytest

from delaystore.stores.memory import InMemoryDelayedMessageStore
from delaystore.testing import SettableClock, StoreCapabilities, StoreConformance, StoreFactory

LEASE = timedelta(minutes=1)


# it waits for seconds; on PostgreSQL it runs always
@pytest.mark.long_tests("test_an_id_that_stays_claimed_is_told_apart_from_one_that_waits")
class TestInMemoryStore(StoreConformance):
    capabilities: ClassVar = StoreCapabilities(
        transactions=True,
        batches=True,
        bounded_batches=True,
        management=True,
        keys=True,
        latest_deliveries=True,
        operations=True,
        ingresses=True,
        history=True,
        schedules=True,
        ending_leases=True,
    )

    @pytest.fixture
    def clock(self) -> SettableClock:
        return SettableClock()

    @pytest.fixture
    def store_factory(self, clock: SettableClock) -> StoreFactory:
        return InMemoryDelayedMessageStore(clock, lease=LEASE).share

    @pytest.fixture
    def end_leases(self, clock: SettableClock) -> Callable[[], None]:
        def end() -> None:
            clock.advance(LEASE)

        return end

    @pytest.fixture
    def pass_time(self, clock: SettableClock) -> Callable[[float], None]:
        def pass_by(seconds: float) -> None:
            clock.advance(seconds)

        return pass_by
