"""What millions that merely wait cost, as a table; nothing is judged here: `make bench` has what is asked."""

import pytest

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES
from benchmarks.curve import Row, measure_row, table
from tests.soak.amounts import CURVE, MOST
from tests.soak.disk import need_disk_for

SMALL_BODY = 20


def show(capsys: pytest.CaptureFixture[str], rows: list[Row]) -> None:
    with capsys.disabled():
        print(f"\n{table(rows)}", flush=True)  # noqa: T201 - what the campaign is for


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_figures_for_more_and_more_that_wait(arena: Arena, capsys: pytest.CaptureFixture[str]) -> None:
    need_disk_for(arena, max(CURVE), BODY_BYTES)
    rows = []
    for waiting in CURVE:
        rows.append(measure_row(arena, waiting))
        show(capsys, rows)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_figures_for_as_many_small_ones_as_fit(arena: Arena, capsys: pytest.CaptureFixture[str]) -> None:
    need_disk_for(arena, MOST, SMALL_BODY)
    show(capsys, [measure_row(arena, MOST, SMALL_BODY)])
