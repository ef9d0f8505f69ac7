"""Search for waiting messages."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delaystore.errors import DelaystoreError
from delaystore.filters import EVERYTHING, MessageFilter
from delaystore.message import DelayedMessage, Position
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import (
    DEADLINE,
    FAR,
    ME,
    NOON,
    SECOND,
    TICK,
    StoreTests,
    a_message,
    assert_only,
    claimed,
    ids,
    repeated,
    search_all,
    some_messages,
)

DESTINATIONS = ("billing", "Billing", "shipping", "b%", "/queues/billing")
HEADERS: tuple[dict[str, Any], ...] = (
    {},
    {"kind": "reminder"},
    {"kind": "Reminder", "n": 7},
    {"Kind": "reminder", "n": 70, "flag": True},
    {"kind": None, "n": "7", "flag": "true"},
    {"kind": b"reminder", "ü": "'; --", "nested": {"n": 7}},
)
PREFIXES = ("a", "A", "ä", "a%", "a_", "_", "%", "order-1", "a'", "\\", "🕰")


def varied(count: int) -> list[DelayedMessage]:
    """Messages that differ in all that a filter can ask for; no two have one position."""
    return [
        a_message(
            f"{PREFIXES[number % len(PREFIXES)]}{number}",
            NOON + number % 7 * SECOND,
            destination=DESTINATIONS[number % len(DESTINATIONS)],
            headers=HEADERS[number % len(HEADERS)],
            failure_count=number % 3,
            next_attempt=NOON + number % 7 * SECOND + number % 3 * timedelta(minutes=1) + number * TICK,
        )
        for number in range(count)
    ]


def filters() -> st.SearchStrategy[MessageFilter]:
    """Filters; some match some of `varied`."""
    return st.builds(
        MessageFilter,
        destination=st.none() | st.sampled_from([*DESTINATIONS, "nowhere"]),
        since=st.none() | st.sampled_from([NOON - TICK, NOON, NOON + TICK, NOON + 2 * SECOND]),
        until=st.none() | st.sampled_from([NOON + 3 * SECOND, NOON + 5 * SECOND + TICK, FAR]),
        id_prefix=st.none() | st.sampled_from(PREFIXES),
        headers=st.dictionaries(
            st.sampled_from(["kind", "Kind", "n", "flag", "ü", "nested"]),
            st.sampled_from(["reminder", "7", "true", "", "'; --"]),
            max_size=2,
        ),
        failing=st.none() | st.booleans(),
        paused=st.none() | st.booleans(),
    )


def count_all(operable: OperableDelayedMessageStore, wanted: MessageFilter, examine: int) -> int:
    """All that match, counted this number of messages at a time."""
    found = operable.count_matching(wanted, examine=examine)
    while found.next_key is not None:
        found = found.and_then(operable.count_matching(wanted, after=found.next_key, examine=examine))
    return found.count


def count_each_hour(operable: OperableDelayedMessageStore, wanted: MessageFilter, examine: int) -> Counter[datetime]:
    """All that match, counted by the hour in which they are due."""
    hour = timedelta(hours=1)
    found, after = operable.count_matching_by_due_time(wanted, hour, examine=examine)
    total = Counter(found)
    while after is not None:
        found, after = operable.count_matching_by_due_time(wanted, hour, after=after, examine=examine)
        total.update(found)
    return total


def hour_of(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


@needs("operations")
class SearchTests(StoreTests):
    """A search finds the messages of its filter, page by page, in the order of positions."""

    def test_all_of_it_is_there(self, operable: OperableDelayedMessageStore) -> None:
        assert operable.is_operable is True
        assert operable.search(EVERYTHING).next_key is None

    def test_a_message_is_found_as_it_was_stored(self, operable: OperableDelayedMessageStore) -> None:
        message = a_message("a", headers={"kind": ["reminder", 1, b"\0"]}, properties={"priority": 3})
        operable.store(message)
        assert_only(operable.search(EVERYTHING).messages, message)
        assert_only(operable.search(MessageFilter(destination="billing")).messages, message)

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (MessageFilter(destination="shipping"), ["b"]),
            (MessageFilter(destination="Shipping"), []),
            (MessageFilter(since=NOON + SECOND), ["b", "late"]),
            (MessageFilter(since=NOON + SECOND + TICK), ["late"]),
            (MessageFilter(until=NOON + SECOND), ["a", "failed"]),
            (MessageFilter(until=NOON + SECOND + TICK), ["a", "b", "failed"]),
            (MessageFilter(id_prefix="l"), ["late"]),
            (MessageFilter(id_prefix="L"), []),
            (MessageFilter(headers={"kind": "reminder"}), ["a", "late"]),
            (MessageFilter(headers={"kind": "reminder", "n": "7"}), ["late"]),
            (MessageFilter(headers={"n": "7"}), ["late"]),
            (MessageFilter(headers={"kind": "remind"}), []),
            (MessageFilter(failing=True), ["failed"]),
            (MessageFilter(failing=False), ["a", "b", "late"]),
            (MessageFilter(destination="billing", since=NOON + TICK, headers={"n": "7"}, failing=False), ["late"]),
            (MessageFilter(destination="shipping", headers={"kind": "reminder"}), []),
        ],
        ids=str,
    )
    def test_what_is_wanted_is_found_and_nothing_else(
        self, operable: OperableDelayedMessageStore, wanted: MessageFilter, expected: list[str]
    ) -> None:
        hour = timedelta(hours=1)
        operable.store(a_message("a", headers={"kind": "reminder"}))
        operable.store(a_message("b", NOON + SECOND, destination="shipping"))
        operable.store(a_message("late", NOON + hour, headers={"kind": "reminder", "n": 7}))
        operable.store(a_message("failed", headers={"kind": 7}, failure_count=2, next_attempt=NOON + 2 * hour))
        assert ids(operable.search(wanted).messages) == expected

    def test_what_is_parked_is_found_as_paused(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many([a_message("a", destination="shipping"), a_message("b"), a_message("c", FAR)])
        operable.pause("billing", by=ME)
        assert operable.park(NOON) == 1
        assert ids(search_all(operable, MessageFilter(paused=True))) == ["b"]
        assert ids(search_all(operable, MessageFilter(paused=False))) == ["a", "c"]
        assert ids(search_all(operable, MessageFilter(paused=True, until=NOON + TICK, destination="billing"))) == ["b"]
        assert ids(search_all(operable, MessageFilter(paused=True, since=NOON + TICK))) == []

    def test_any_filter_finds_what_matches_it(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many(varied(60))
        operable.pause("shipping", by=ME)
        assert repeated(lambda: operable.park(NOON + timedelta(minutes=1)))
        everything = search_all(operable)
        assert len(everything) == 60

        @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
        @given(filters(), st.sampled_from([1, 7, 100]), st.sampled_from([1, 10, 1000]))
        def found(wanted: MessageFilter, limit: int, examine: int) -> None:
            expected = [message for message in everything if wanted.matches(message)]
            assert ids(search_all(operable, wanted, limit=limit, examine=examine)) == ids(expected)
            assert count_all(operable, wanted, examine) == len(expected)
            assert count_each_hour(operable, wanted, examine) == Counter(hour_of(each.due_time) for each in expected)

        found()

    @pytest.mark.parametrize("limit", [1, 7, 100])
    @pytest.mark.parametrize("examine", [1, 8, 1000])
    def test_pages_of_a_search_cover_everything_once(
        self, operable: OperableDelayedMessageStore, limit: int, examine: int
    ) -> None:
        messages = [a_message("first", NOON - TICK), *some_messages(30, step=timedelta(0)), a_message("z", NOON + TICK)]
        operable.store_many(reversed(messages))
        found = ids(search_all(operable, limit=limit, examine=examine))
        assert (found[0], found[-1]) == ("first", "z")
        assert sorted(found) == sorted(ids(messages))

    def test_pages_of_a_search_cover_ids_of_any_script_once(self, operable: OperableDelayedMessageStore) -> None:
        names = ["a", "A", "B", "b", "ä", "Z", "z ", "z", "é", "🕰", "~", "a~b", "1", "_", "\uffff"]
        operable.store_many([a_message(name) for name in names])
        assert sorted(ids(search_all(operable, limit=1))) == sorted(names)
        assert ids(search_all(operable, limit=100, examine=2)) == ids(search_all(operable))

    def test_the_few_among_many_are_found_behind_short_pages(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many([a_message(f"m{n:02}", NOON + n * SECOND, headers={"n": n % 20}) for n in range(50)])
        wanted = MessageFilter(headers={"n": "19"})
        assert ids(search_all(operable, wanted, limit=1, examine=5)) == ["m19", "m39"]
        assert ids(search_all(operable, wanted, limit=2, examine=50)) == ["m19", "m39"]
        page = operable.search(MessageFilter(headers={"n": "nothing"}), limit=5, examine=5)
        assert ids(page.messages) == []
        assert page.next_key is not None, "there is more to look at"

    def test_a_search_goes_on_after_its_key_though_the_message_is_gone(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(4))
        page = operable.search(EVERYTHING, limit=2)
        operable.cancel("m1")
        assert ids(operable.search(EVERYTHING, after=page.next_key).messages) == ["m2", "m3"]
        assert ids(operable.search(EVERYTHING, after=Position(NOON + SECOND, "m1")).messages) == ["m2", "m3"]

    def test_what_a_dispatcher_has_is_found_without_waiting_for_it(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many(some_messages(2))
        with ThreadPoolExecutor(1) as pool, colleague.transaction() as transaction:
            claimed(transaction)
            questions: list[Callable[[], object]] = [
                lambda: ids(search_all(operable)),
                lambda: ids(search_all(operable, MessageFilter(destination="billing", failing=False))),
                lambda: dict(operable.count_by_destination()),
                lambda: sum(operable.count_between(NOON, FAR, timedelta(hours=1)).values()),
            ]
            answers = [pool.submit(question).result(DEADLINE) for question in questions]
        assert answers[:3] == [["m0", "m1"], ["m0", "m1"], {"billing": 2}]

    @pytest.mark.parametrize("bound", ["limit", "examine"])
    def test_a_bound_that_is_no_number_from_1_is_refused(
        self, operable: OperableDelayedMessageStore, bound: str
    ) -> None:
        bounds: dict[str, Any] = {bound: 0}
        with pytest.raises(DelaystoreError):
            operable.search(EVERYTHING, **bounds)

    def test_a_time_in_any_zone_is_the_same(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a"))
        there: datetime = NOON.astimezone()
        assert ids(search_all(operable, MessageFilter(since=there, until=there + TICK))) == ["a"]
