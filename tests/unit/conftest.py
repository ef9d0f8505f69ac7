"""A store, its clock and a transport, as most tests of what dispatches take them; others make their own."""

import pytest

from delaystore.testing import SettableClock
from tests.dispatching import CountingStore, ScriptedTransport


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def store(clock: SettableClock) -> CountingStore:
    return CountingStore(clock)


@pytest.fixture
def transport() -> ScriptedTransport:
    return ScriptedTransport()
