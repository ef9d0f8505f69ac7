"""What a preview counts: by minute and destination, beside waiting messages and limits."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image

from delaystore.bulk import preview
from delaystore.bulk.columns import STAGED
from delaystore.bulk.preview import (
    DueCounts,
    DueMessages,
    DueSpan,
    LoadPreview,
    check_plot,
    counts_of,
    draw,
    preview_of,
)
from delaystore.errors import ConfigurationError
from delaystore.message import EARLIEST_DUE_TIME, LATEST_DUE_TIME, DelayedMessage, new_message_id
from delaystore.settings import TransactionMode
from delaystore.stores import SqlDelayedMessageStore
from tests.conformance.minimal_store import MinimalStore, Storage
from tests.integration.loading import batch

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FIRST = int(NOON.timestamp()) // 60


def message(number: int, due: datetime, destination: str = "q") -> DelayedMessage:
    return DelayedMessage(message_id=f"m{number}", destination=destination, due_time=due, body=b"x")


def counted(*batches: list[DelayedMessage]) -> Mapping[str, Mapping[int, int]]:
    counts = DueCounts()
    for messages in batches:
        counts.add(batch(messages) if messages else pa.RecordBatch.from_pylist([], STAGED))
    return counts.counts()


StoreMaker = Callable[..., SqlDelayedMessageStore]


@pytest.fixture
def a_store(tmp_path: Path) -> Iterator[StoreMaker]:
    with ExitStack() as stores:

        def make(*messages: DelayedMessage, **limits: float) -> SqlDelayedMessageStore:
            store = SqlDelayedMessageStore(f"sqlite:///{tmp_path / new_message_id()}.db")
            stores.callback(store.close)
            store.initialize("sales", TransactionMode.NONE)
            store.setup_infrastructure()
            store.store_many(messages)
            for name, limit in limits.items():
                store.limit_rate(name, limit, by="me")
            return store

        yield make


def test_batches_are_counted_together_by_destination_and_minute() -> None:
    edges = [NOON - timedelta(microseconds=1), NOON, NOON + MINUTE - timedelta(microseconds=1), NOON + MINUTE]
    first = [message(number, due) for number, due in enumerate(edges)]
    others = [message(9, NOON, "r"), message(10, NOON), message(11, EARLIEST_DUE_TIME), message(12, LATEST_DUE_TIME)]
    expected = {
        "q": {
            FIRST - 1: 1,
            FIRST: 3,
            FIRST + 1: 1,
            int(EARLIEST_DUE_TIME.timestamp()) // 60: 1,
            int(LATEST_DUE_TIME.timestamp()) // 60: 1,
        },
        "r": {FIRST: 1},
    }
    assert counted(first, [], others) == expected
    assert counted() == counted([]) == {}


def test_the_first_minute_above_a_limit_counts_waiting_messages(a_store: StoreMaker) -> None:
    store = a_store(*(message(100 + number, NOON + MINUTE) for number in range(20)), q=0.5, r=0.5, other=1)
    due = [*[NOON] * 30, *[NOON + MINUTE] * 11, *[NOON + 2 * MINUTE] * 50]
    found = preview_of(counted([message(n, at) for n, at in enumerate(due)], [message(99, NOON, "r")]), store)
    limited = {each.destination: (each.max_rate, each.exceeded) for each in found.destinations}
    assert limited == {"q": (0.5, DueSpan(NOON + MINUTE, 11, 20)), "r": (0.5, None)}
    assert found.every.spans() == [
        DueSpan(NOON, 31, 0),
        DueSpan(NOON + MINUTE, 11, 20),
        DueSpan(NOON + 2 * MINUTE, 50, 0),
    ]
    document = found.document()
    assert document["destinations"][0]["first_exceeded"] == {
        "start": "2027-03-01T12:01:00+00:00",
        "rows": 11,
        "waiting": 20,
    }


def test_waiting_messages_for_others_and_at_other_times_do_not_count(a_store: StoreMaker) -> None:
    store = a_store(message(1, NOON, "other"), message(2, NOON - MINUTE), message(3, NOON + MINUTE), message(4, NOON))
    assert preview_of(counted([message(9, NOON)]), store).every.spans() == [DueSpan(NOON, 1, 1)]


def test_limited_destinations_come_first_then_those_with_most_rows(
    monkeypatch: pytest.MonkeyPatch, a_store: StoreMaker
) -> None:
    monkeypatch.setattr(preview, "MOST_DESTINATIONS", 2)
    counts = counts_of([("few", FIRST, 1), ("many", FIRST, 9), ("some", FIRST, 5), ("few", FIRST, 1)])
    found = preview_of(counts, a_store(few=1))
    assert [each.destination for each in found.destinations] == ["few", "many"]
    assert found.every.spans() == [DueSpan(NOON, 16, 0)]


def test_the_first_and_last_times_are_previewed_and_drawn(tmp_path: Path, a_store: StoreMaker) -> None:
    due = [EARLIEST_DUE_TIME, NOON, LATEST_DUE_TIME - MINUTE, LATEST_DUE_TIME]
    store = a_store(*(message(100 + number, at) for number, at in enumerate(due)))
    found = preview_of(counted([message(number, at) for number, at in enumerate(due)]), store)
    assert [(span.start, span.rows, span.waiting) for span in found.every.spans()] == [
        *((at, 1, 1) for at in due[:3]),
        (LATEST_DUE_TIME, 1, 0),  # where parked messages are
    ]
    draw(found, tmp_path / "a.png")
    draw(preview_of(counted([message(1, LATEST_DUE_TIME)]), None), tmp_path / "a.png")


def test_a_store_that_cannot_count_is_told_apart_from_an_empty_one(a_store: StoreMaker) -> None:
    counts = counted([message(1, NOON)])
    cannot = preview_of(counts, MinimalStore(Storage()))
    assert (cannot.every.waiting, cannot.document()["minutes"][0]["waiting"]) == (None, None)
    assert preview_of(counts, None).document()["minutes"][0]["waiting"] == 0
    assert preview_of({}, a_store()).every.spans() == []


@pytest.mark.parametrize(
    ("minutes", "step"),
    [
        (range(60), MINUTE),
        (range(61), 5 * MINUTE),
        (range(0, 600, 10), MINUTE),
        (range(0, 1440 * 60, 60), timedelta(days=1)),
        ([0, 10**9], MINUTE),
        (range(0, 4 * 10**9, 60 * 1440), timedelta(days=3650)),
    ],
)
def test_bars_are_as_short_as_a_screen_allows(minutes: range, step: timedelta) -> None:
    found = DueMessages(rows=dict.fromkeys(minutes, 2))
    length, bars = found.bars(60)
    assert length == step
    assert sum(bar.rows for bar in bars) == 2 * len(minutes)


def test_a_preview_is_drawn(tmp_path: Path, a_store: StoreMaker) -> None:
    for number, limits in enumerate(({}, {"q": 0.5})):
        path = tmp_path / f"{number}.png"
        check_plot(path)
        store = a_store(message(100, NOON), **limits)
        draw(preview_of(counted([message(n, NOON + n * MINUTE) for n in range(50)]), store), path)
        with Image.open(path) as picture:
            assert (picture.format, picture.width > picture.height) == ("PNG", True)
            colours = picture.convert("RGB").getcolors(10**6) or []
        assert {(70, 130, 180), (192, 192, 192)} <= {colour for _, colour in colours}  # steelblue, silver
        assert ((178, 34, 34) in {colour for _, colour in colours}) == bool(limits)  # firebrick
    draw(LoadPreview(), tmp_path / "empty.png")


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for path, says in (
        (tmp_path, "is a folder; name a file in it"),
        (tmp_path / "none" / "a.png", "its folder does not exist; create it first"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            check_plot(path)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        draw(LoadPreview(), Path("/proc/a.png"))
