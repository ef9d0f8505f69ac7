"""What takes long: it is left out of `make test`, and run by `make test-long`.

`pytest.mark.long` marks a test. For some runs of a parametrized test there is `long(...)`, and `long_runs`: of each run
that has one of these ids among its parameters, or of those after the first few (`after=2`). The mark of a test goes
before that of its file. For tests that a class inherits there are `long_tests` and `long_but`: those of these names, or
all others.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pytest

MARKERS: Final = (
    "long_runs(*ids, after=None): of a test, the runs that have one of these ids, or all after the first few",
    "long_tests(*names): of a class, the tests of these names",
    "long_but(*names): of a class, all tests but those of these names",
)


def long(*values: object) -> Any:
    """The values of one run of a parametrized test, or of a fixture, where that run takes long."""
    return pytest.param(*values, marks=pytest.mark.long)


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Mark as long what `long_runs`, `long_tests` and `long_but` say."""
    runs: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        runs[test] += 1
        if _is_long_run(item, runs[test]) or _is_long_in_its_class(item):
            item.add_marker("long")


def _is_long_run(item: pytest.Item, number: int) -> bool:
    marker = item.get_closest_marker("long_runs")
    if marker is None or not hasattr(item, "callspec"):
        return False
    if number > marker.kwargs.get("after", number):
        return True
    return any(f"-{part}-" in f"-{item.callspec.id}-" for part in marker.args)


def _is_long_in_its_class(item: pytest.Item) -> bool:
    name = item.nodeid.rpartition("::")[2].partition("[")[0]
    tests, but = item.get_closest_marker("long_tests"), item.get_closest_marker("long_but")
    return (tests is not None and name in tests.args) or (but is not None and name not in but.args)
