"""What the tests of the store contract have in common."""

import time
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from delaystore.settings import TransactionMode
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.testing._capabilities import SelectedByCapabilities, StoreCapabilities

StoreFactory = Callable[[], DelayedMessageStore]
ENDPOINT = "conformance"


def opened(factory: StoreFactory) -> DelayedMessageStore:
    """A store from `factory`, ready for use."""
    store = factory()
    store.initialize(ENDPOINT, TransactionMode.RECEIVE_ONLY)
    store.setup_infrastructure()
    return store


class StoreTests(SelectedByCapabilities):
    """The fixtures. Authors override `store_factory`, and each of those below it if its flag is set."""

    capabilities: ClassVar[StoreCapabilities] = StoreCapabilities()

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        """Each call makes another store, uninitialized, on the same storage, which is empty at first."""
        raise NotImplementedError("override the fixture store_factory")

    @pytest.fixture
    def open_elsewhere(self) -> StoreFactory:
        """For `other_processes`: a picklable function (a functools.partial will do) that is a store_factory."""
        raise NotImplementedError("the flag other_processes asks for the fixture open_elsewhere")

    @pytest.fixture
    def hostile_store_factory(self) -> StoreFactory:
        """For `hostile_sessions`: a store_factory on the same storage, with sessions in a distant time zone."""
        raise NotImplementedError("the flag hostile_sessions asks for the fixture hostile_store_factory")

    @pytest.fixture
    def corrupt(self) -> Callable[[str], None]:
        """For `unreadable_rows`: makes the stored headers of the message of that id undecodable."""
        raise NotImplementedError("the flag unreadable_rows asks for the fixture corrupt")

    @pytest.fixture
    def end_leases(self) -> Callable[[], None]:
        """For `ending_leases`: makes every lease end now, as if its time had passed."""
        raise NotImplementedError("the flag ending_leases asks for the fixture end_leases")

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        """For `operations`: makes so many seconds pass on the store's clock. This one waits for them."""
        return time.sleep

    @pytest.fixture
    def opened_stores(self) -> Iterator[list[DelayedMessageStore]]:
        """The stores to close after the test."""
        stores: list[DelayedMessageStore] = []
        yield stores
        for store in stores:
            store.close()

    @pytest.fixture
    def open_store(self, store_factory: StoreFactory, opened_stores: list[DelayedMessageStore]) -> StoreFactory:
        """Opens one more store on the storage, initialized and set up."""

        def open_one() -> DelayedMessageStore:
            opened_stores.append(store := opened(store_factory))
            return store

        return open_one

    @pytest.fixture
    def store(self, open_store: StoreFactory) -> DelayedMessageStore:
        """The store under test."""
        return open_store()

    @pytest.fixture
    def other(self, open_store: StoreFactory) -> DelayedMessageStore:
        """Another store on the same storage, as in another process."""
        return open_store()

    @pytest.fixture
    def managed(self, store: DelayedMessageStore) -> ManagedDelayedMessageStore:
        """The store under test, as a ManagedDelayedMessageStore."""
        assert isinstance(store, ManagedDelayedMessageStore), "the flag management is for a ManagedDelayedMessageStore"
        return store

    @pytest.fixture
    def operable(self, store: DelayedMessageStore) -> OperableDelayedMessageStore:
        """The store under test, as an OperableDelayedMessageStore."""
        return as_operable(store)

    @pytest.fixture
    def colleague(self, other: DelayedMessageStore) -> OperableDelayedMessageStore:
        """The other store, as an OperableDelayedMessageStore."""
        return as_operable(other)


def as_operable(store: DelayedMessageStore) -> OperableDelayedMessageStore:
    """`store` as an OperableDelayedMessageStore."""
    assert isinstance(store, OperableDelayedMessageStore), "the flag operations is for an OperableDelayedMessageStore"
    return store
