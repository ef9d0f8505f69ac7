"""What takes long: it is left out of `make test`, and run by `make test-long`."""

from typing import Any

import pytest


def long(*values: object) -> Any:
    """The values of one run of a parametrized test, or of a fixture, where that run takes long."""
    return pytest.param(*values, marks=pytest.mark.long)
