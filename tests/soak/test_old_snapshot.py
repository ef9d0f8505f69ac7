"""An hour of traffic while a forgotten transaction keeps PostgreSQL from cleaning up."""

import pytest

from benchmarks.arena import Arena
from benchmarks.lateness import run_sender
from benchmarks.programs import OURS, running, warm_up
from tests.faults.patience import wait_until
from tests.soak.amounts import MINUTES
from tests.soak.traffic import Arrivals, rebuild_indexes, space_of, vacuum

WAITING = 1_000_000
PER_SECOND = 2_000
SECONDS = round(60 * MINUTES)
WINDOW = min(60, SECONDS // 4)  # seconds at the beginning and at the end that are compared


@pytest.mark.soak
@pytest.mark.timeout(2 * SECONDS + 1800)
def test_an_old_snapshot_costs_no_speed_and_once_released_no_space(
    arena: Arena, capsys: pytest.CaptureFixture[str]
) -> None:
    count = PER_SECOND * SECONDS
    with arena.filled_bench(WAITING) as bench, running(OURS, bench) as process:
        warm_up(bench, process, 500)
        vacuum(bench)
        before = space_of(bench)
        with Arrivals(bench.transport_url, bench.queue) as arrivals, bench.old_snapshot():
            run_sender(bench, count, PER_SECOND)
            wait_until(lambda: arrivals.count >= count, f"all {count} messages have arrived")
            held = space_of(bench)
        first, last = arrivals.first_and_last(WINDOW)
        vacuum(bench)
        after = space_of(bench)
        rebuild_indexes(bench)
        rebuilt = space_of(bench)
    with capsys.disabled():
        print(  # noqa: T201 - for a campaign's log
            f"\n{first:,.0f}/s in the first {WINDOW} s, {last:,.0f}/s in the last"
            f"\nbefore {before}\nsnapshot held {held}\nafter a vacuum {after}"
            f"\nindexes rebuilt {rebuilt}",
            flush=True,
        )
    assert arrivals.count == count
    assert last >= 0.95 * first
    assert after.rows <= 1.2 * before.rows
    assert after.table_bytes <= 1.2 * before.table_bytes
    assert rebuilt.index_bytes <= 1.2 * before.index_bytes  # PostgreSQL itself uses its pages again, but keeps them
