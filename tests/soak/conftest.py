"""What the campaigns share."""

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.arena import Arena


@pytest.fixture
def arena(start_server: Callable[[Callable[[], Any]], Any]) -> Arena:
    """Servers with their default settings, for one test."""
    running: Arena = start_server(Arena)
    return running
