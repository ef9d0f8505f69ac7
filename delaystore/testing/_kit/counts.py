"""Counting what waits, as operators need it."""

from datetime import UTC, datetime, timedelta

import pytest

from delaystore.errors import DelaystoreError
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import StoreTests
from delaystore.testing._kit.messages import FAR, NOON, SECOND, TICK, a_message, some_messages
from delaystore.testing._kit.operable import HOUR, ME


@needs("operations")
class CountTests(StoreTests):
    """By next attempt, by destination; what fails, and what is parked."""

    def test_next_attempts_are_counted_by_bucket_from_since_to_until(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        times = (NOON - TICK, NOON, NOON + HOUR - TICK, NOON + HOUR, NOON + 3 * HOUR - TICK, NOON + 3 * HOUR)
        operable.store_many([a_message(str(number), due_time) for number, due_time in enumerate(times)])
        assert dict(operable.count_between(NOON, NOON + 3 * HOUR, HOUR)) == {
            NOON: 2,
            NOON + HOUR: 1,
            NOON + 2 * HOUR: 1,
        }
        assert dict(operable.count_between(NOON - HOUR, NOON, HOUR)) == {NOON - HOUR: 1}
        assert dict(operable.count_between(NOON + TICK, NOON + HOUR, timedelta(days=1))) == {
            datetime(2031, 1, 1, tzinfo=UTC): 1
        }
        assert dict(operable.count_between(FAR, FAR + HOUR, HOUR)) == {}

    def test_a_message_counts_where_it_is_shown_again(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(a_message("a", failure_count=1, next_attempt=NOON + HOUR))
        assert dict(operable.count_between(NOON, NOON + 2 * HOUR, HOUR)) == {NOON + HOUR: 1}

    @pytest.mark.parametrize("bucket", [timedelta(0), timedelta(milliseconds=1500), -HOUR], ids=str)
    def test_a_bucket_that_is_no_whole_number_of_seconds_is_refused(
        self, operable: OperableDelayedMessageStore, bucket: timedelta
    ) -> None:
        with pytest.raises(DelaystoreError):
            operable.count_between(NOON, FAR, bucket)

    def test_destinations_are_counted_the_most_first(self, operable: OperableDelayedMessageStore) -> None:
        assert dict(operable.count_by_destination()) == {}
        for name, count in (("billing", 3), ("Billing", 1), ("shipping", 5), ("b ", 2)):
            operable.store_many([a_message(f"{name}{number}", destination=name) for number in range(count)])
        assert list(operable.count_by_destination().items()) == [
            ("shipping", 5),
            ("billing", 3),
            ("b ", 2),
            ("Billing", 1),
        ]
        assert dict(operable.count_by_destination(2)) == {"shipping": 5, "billing": 3}

    def test_what_fails_is_counted_up_to_a_number(self, operable: OperableDelayedMessageStore) -> None:
        assert operable.count_failing(10) == 0
        operable.store_many(some_messages(3))
        operable.store_many([a_message(f"f{n}", failure_count=n, next_attempt=NOON + n * SECOND) for n in range(1, 5)])
        assert (operable.count_failing(10), operable.count_failing(4), operable.count_failing(3)) == (4, 4, 3)

    def test_what_is_parked_is_counted_up_to_a_number(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many(some_messages(4))
        assert operable.count_parked(10) == 0
        operable.pause("billing", by=ME)
        assert operable.park(NOON + 2 * SECOND) == 3
        assert (operable.count_parked(10), operable.count_parked(3), operable.count_parked(2)) == (3, 3, 2)
        assert operable.count_by_destination() == {"billing": 4}
