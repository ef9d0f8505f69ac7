"""Due times that a load spreads: the same for each id, evenly, with a growing start, and within windows."""

import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import blake2b

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, StringType, TimestampType

from delaystore.bulk.options import write_options
from delaystore.bulk.timing import offsets
from delaystore.bulk.windows import SendWindow
from delaystore.errors import ConfigurationError
from delaystore.message import LATEST_DUE_TIME
from tests.unit.converting import DUE, convert, reasons, rows

HOUR = timedelta(hours=1)
COUNT = 20_000
HOURS = {"window": SendWindow.parse("10:00-16:00", "--window"), "time_zone": "UTC"}
STORE = {"store": "sqlite:///app.db", "endpoint": "sales"}


def later(count: int = COUNT, due: datetime = DUE, **options: object) -> list[timedelta]:
    """How much later than `due` each message is."""
    columns = rows(count, due_time=(TimestampType(), [due] * count))
    return [at - due for at in convert(columns, **options).staged.column("due_time").to_pylist()]


def share(found: Sequence[timedelta], until: timedelta) -> float:
    return sum(each < until for each in found) / len(found)


def test_messages_are_spread_evenly_and_never_to_the_end() -> None:
    found = later(spread=4 * HOUR)
    assert timedelta(0) <= min(found) < timedelta(seconds=10)
    assert 4 * HOUR - timedelta(seconds=10) < max(found) < 4 * HOUR
    assert len(set(found)) > COUNT - 5  # no two at one time
    for tenth in range(1, 10):
        assert share(found, tenth / 10 * 4 * HOUR) == pytest.approx(tenth / 10, abs=0.015)


def test_an_id_decides_alone_when_its_message_is_due() -> None:
    """By a rule of every release: a load that is run again by a later one must find the same."""
    ids = ["id-0", "Zürich", "x" * 200]
    columns = rows(3, message_id=(StringType(), ids))
    alone = [
        convert(rows(1, message_id=(StringType(), [each])), spread=4 * HOUR).staged.column("due_time")[0].as_py()
        for each in ids
    ]
    assert convert(columns, spread=4 * HOUR).staged.column("due_time").to_pylist() == alone
    digests = [blake2b(each.encode(), digest_size=8, person=b"delaystore.due").digest() for each in ids]
    fractions = [(int.from_bytes(digest, "little") >> 11) / 2**53 for digest in digests]
    assert [at - DUE for at in alone] == [timedelta(microseconds=int(each * 4 * 3600e6)) for each in fractions]


def test_the_numbers_are_the_same_in_a_process_with_other_hashes() -> None:
    program = (
        "import pyarrow as pa; from delaystore.bulk.timing import hashes; "
        "print(hashes(pa.array(['id-0', None, ''])).to_pylist())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_a_ramp_lets_the_rate_grow_from_nothing() -> None:
    found = later(spread=4 * HOUR, ramp=2 * HOUR)
    assert max(found) < 4 * HOUR
    rate = 1 / 3  # of all messages, in an hour behind the ramp
    for hours, expected in ((0.5, 0.25**2 * rate), (1, 0.25 * rate), (2, rate), (3, 2 * rate), (3.5, 2.5 * rate)):
        assert share(found, hours * HOUR) == pytest.approx(expected, abs=0.015)
    whole = later(spread=4 * HOUR, ramp=4 * HOUR)
    assert share(whole, 2 * HOUR) == pytest.approx(0.25, abs=0.015)


@given(
    st.integers(0, 2**53 - 1), st.integers(1, 10**15).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
)  # fmt: skip
def test_an_offset_is_less_than_the_spread_and_grows_with_the_fraction(number: int, times: tuple[int, int]) -> None:
    spread, ramp = times
    fractions = pa.array([number * 2.0**-53, min(number + 1, 2**53 - 1) * 2.0**-53, 1 - 2.0**-53])
    found = offsets(fractions, pa.scalar(float(spread)), pa.scalar(float(ramp))).to_pylist()
    assert 0 <= found[0] <= found[1] <= found[2] < spread


def test_what_the_window_moves_is_spread_again_from_its_opening() -> None:
    """Also messages of whose ids the first part alone would be moved."""
    before = DUE.replace(hour=8, minute=0, second=0, microsecond=0)
    opening = 2 * HOUR
    found = later(due=before, spread=4 * HOUR, **HOURS)
    assert min(found) >= opening
    assert max(found) < opening + 4 * HOUR
    inside, moved = 0.5, 0.5  # evenly from 10:00 to 12:00, and evenly from 10:00 to 14:00
    assert share(found, opening + 2 * HOUR) == pytest.approx(inside + moved / 2, abs=0.015)
    assert share(found, opening + 0.5 * HOUR) == pytest.approx(inside / 4 + moved / 8, abs=0.015)
    assert len(set(found)) > COUNT - 5


def test_it_is_spread_again_over_the_window_where_that_is_shorter() -> None:
    narrow = {"window": SendWindow.parse("10:00-10:30", "--window"), "time_zone": "UTC"}
    before = DUE.replace(hour=12)
    found = [at.total_seconds() for at in later(due=before, spread=4 * HOUR, ramp=4 * HOUR, **narrow)]
    opening = (before.replace(hour=10, minute=0, second=0, microsecond=0) + timedelta(days=1) - before).total_seconds()
    assert opening <= min(found)
    assert max(found) < opening + 1800
    assert sum(at < opening + 900 for at in found) / COUNT == pytest.approx(0.25, abs=0.015)  # by the ramp


def test_without_a_spread_all_go_to_the_opening() -> None:
    before = DUE.replace(hour=8, minute=0, second=0, microsecond=0)
    assert set(later(10, due=before, **HOURS)) == {2 * HOUR}


@pytest.mark.parametrize("moved", [{"spread": 4 * HOUR}, HOURS], ids=["spread", "window"])
def test_a_latest_delivery_counts_from_the_due_time_that_results(moved: dict[str, object]) -> None:
    late = convert(rows(100, max_late=(IntegerType(), [60] * 100)), **moved).staged
    due, limits = (late.column(name).to_pylist() for name in ("due_time", "not_after"))
    assert min(due) > DUE
    assert limits == [time + timedelta(minutes=1) for time in due]


@pytest.mark.parametrize("moved", [{"spread": 4 * HOUR}, HOURS], ids=["spread", "window"])
def test_a_message_that_moves_behind_its_latest_delivery_is_rejected(moved: dict[str, object]) -> None:
    soon, then = DUE + timedelta(microseconds=1), DUE + 5 * HOUR
    converted = convert(rows(2, not_after=(TimestampType(), [soon, then])), **moved)
    assert reasons(converted) == ["not_after is before the due time"]
    assert converted.staged.column("not_after").to_pylist() == [then]


def test_a_message_that_is_spread_beyond_the_calendar_is_rejected() -> None:
    times = [LATEST_DUE_TIME - timedelta(days=400), LATEST_DUE_TIME - timedelta(microseconds=1)]
    for options in ({}, HOURS):
        found = convert(rows(2, due_time=(TimestampType(), times)), spread=timedelta(days=300), **options)
        assert reasons(found) == ["due_time is out of range"]
        assert found.staged.num_rows == 1


def test_rows_that_are_rejected_keep_their_reason() -> None:
    columns = rows(3, message_id=(StringType(), [None, "a", "b"]), due_time=(TimestampType(), [DUE, None, DUE]))
    for options in ({}, HOURS):
        found = convert(columns, spread=HOUR, **options)
        assert reasons(found) == ["message_id is null", "due_time is null"]
        assert found.staged.column("message_id").to_pylist() == ["b"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"spread": "0"}, "the option spread must be above 0"),
        ({"spread": "-1h"}, "the option spread '-1h' is negative"),
        ({"spread": "4 parsecs"}, "the option spread '4 parsecs' is no duration"),
        ({"spread": "36501d"}, "the option spread must be above 0, and at most 36500d"),
        ({"ramp": "1h"}, "the option ramp is a part of the option spread"),
        ({"ramp": "2h", "spread": "1h"}, "the option ramp is a part of the option spread"),
        ({"ramp": "0", "spread": "1h"}, "the option ramp must be above 0"),
        ({"window": "08:00-20:00"}, "needs zones; set the option timeZone or the option zoneColumn"),
        ({"window": "20:00", "timeZone": "UTC"}, "the option window '20:00' is no window"),
        ({"window": "08:00-20:00", "timeZone": "Mars/Olympus"}, "the time zone 'Mars/Olympus' is unknown"),
        ({"maxRowsPerSecond": "0"}, "the option maxRowsPerSecond must be a whole number from 1"),
        ({"maxRowsPerSecond": "many"}, "the option maxRowsPerSecond must be a whole number from 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        write_options({**STORE, **options})


def test_options_are_read() -> None:
    found = write_options({**STORE, "spread": "4h", "ramp": "90", "window": "8:00-20:00", "zoneColumn": "tz"})
    assert (found.spread, found.ramp, found.zone_column) == (4 * HOUR, timedelta(seconds=90), "tz")
    assert found.window == SendWindow(8 * HOUR, 20 * HOUR)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ({}, "the zone column tz is not there; the columns are"),
        ({"tz": (TimestampType(), [DUE])}, "column tz is timestamp: a time zone must be string"),
    ],
)
def test_a_column_of_time_zones_must_be_there_and_text(column: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        convert(rows(1, **column), zone_column="tz", **HOURS)
