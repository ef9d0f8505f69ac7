"""Clusters take long: the nodes take fifteen seconds to start, and five to come back."""

from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before tests/conftest.py leaves out what takes long
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each of these tests takes long."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.long)
