"""The kit finds what is wrong with operable stores, each broken in one way."""

import pytest

from tests.unit.test_conformance_kit import failures

HEAD = """
from dataclasses import replace
from contextlib import contextmanager
import pytest
from hypothesis import Phase, settings
from delaystore.stores.memory import InMemoryDelayedMessageStore as Memory
from delaystore.stores.records import (Allowance, OperationState)
from delaystore.testing import SettableClock, StoreCapabilities, StoreConformance
from delaystore.testing._kit import _base as waiting
from delaystore.testing._kit._base import TICK
settings.register_profile("unshrunk", phases=[Phase.generate], derandomize=True)
settings.load_profile("unshrunk")
waiting.DEADLINE = 2.0
"""
HISTORIES = "test_random_histories_of_operators_are_those_of_the_in_memory_store"
TAIL = """
class TestBroken(StoreConformance):
    operable_histories = 200
    capabilities = StoreCapabilities(
        transactions=True, batches=True, management=True, operations=True, ingresses=True
    )

    @pytest.fixture
    def clock(self):
        return SettableClock()

    @pytest.fixture
    def store_factory(self, clock):
        return Broken(clock).share

    @pytest.fixture
    def pass_time(self, clock):
        return clock.advance
"""
BROKEN = {
    "a search looks at next attempts": (
        """
class Broken(Memory):
    def search(self, wanted, **bounds):
        since = wanted.since
        page = super().search(replace(wanted, since=None), **bounds)
        return replace(page, messages=[m for m in page.messages if since is None or m.next_attempt >= since])
""",
        {"test_what_is_wanted_is_found_and_nothing_else", "test_what_is_parked_is_found_as_paused"},
    ),
    "a search ends with its first short page": (
        """
class Broken(Memory):
    def search(self, wanted, limit=100, **bounds):
        page = super().search(wanted, limit=limit, **bounds)
        return page if len(page.messages) == limit else replace(page, next_key=None)
""",
        {
            "test_the_few_among_many_are_found_behind_short_pages",
            "test_any_filter_finds_what_matches_it",
            "test_pages_of_a_search_cover_everything_once",
            "test_pages_of_a_search_cover_ids_of_any_script_once",
        },
    ),
    "progress is not committed": (
        """
class Broken(Memory):
    def advance_operation(self, operation_id, examine=2000):
        step = super().advance_operation(operation_id, examine)
        if step is not None and step.state is OperationState.RUNNING:
            self._waiting().operations[operation_id] = replace(step, examined=0, changed=0, after=None)
        return step
""",
        {"test_a_step_is_committed_with_its_progress", "test_another_process_goes_on_where_one_has_died"},
    ),
    "an operation is noted only at its beginning and its end": (
        """
class Broken(Memory):
    def advance_operation(self, operation_id, examine=2000, change=None):
        noted = list(self._waiting().changes)
        step = super().advance_operation(operation_id, examine, change=change)
        if step is not None and step.state is OperationState.RUNNING:
            self._waiting().changes = noted
        return step
""",
        {
            "test_an_operation_is_noted_as_it_begins_and_with_its_last_step",
            "test_what_an_interrupted_operation_has_changed_is_noted",
        },
    ),
    "a resumed operation begins again": (
        """
class Broken(Memory):
    def advance_operation(self, operation_id, examine=2000):
        found = self.operation(operation_id)
        if found is not None and found.state is OperationState.RUNNING and operation_id not in self.__dict__:
            self.__dict__[operation_id] = True
            self._waiting().operations[operation_id] = replace(found, after=None)
        return super().advance_operation(operation_id, examine)
""",
        {"test_another_process_goes_on_where_one_has_died"},
    ),
    "an operation takes what a dispatcher has": (
        """
class Broken(Memory):
    def advance_operation(self, operation_id, examine=2000):
        for entry in self._waiting().entries.values():
            entry.claimer = None
        return super().advance_operation(operation_id, examine)
""",
        {
            "test_what_a_dispatcher_has_is_left_alone_and_counted_as_held",
            "test_the_ids_of_many_that_are_held_are_bounded",
        },
    ),
    "an abandoned operation goes on": (
        """
class Broken(Memory):
    def advance_operation(self, operation_id, examine=2000):
        found = self.operation(operation_id)
        if found is not None and found.state is OperationState.ABANDONED:
            self._waiting().operations[operation_id] = replace(found, state=OperationState.RUNNING)
        return super().advance_operation(operation_id, examine)
""",
        {"test_what_has_ended_stays_as_it_is"},
    ),
    "a pause never ends by itself": (
        """
class Broken(Memory):
    def pause(self, destination, *, by, until=None, change=None):
        super().pause(destination, by=by, change=change)
""",
        {
            "test_a_pause_ends_by_itself",
            "test_a_pause_is_seen_by_all_until_it_is_resumed",
        },
    ),
    "what is parked is overdue": (
        """
class Broken(Memory):
    def status(self):
        return replace(super().status(), first_due=min((m.due_time for m in self.list().messages), default=None))
""",
        {"test_what_is_parked_is_not_overdue_and_wakes_nobody"},
    ),
    "parking moves the due time": (
        """
class Broken(Memory):
    def park(self, until, at_most=2000):
        count = super().park(until, at_most)
        for name in self._waiting().parked:
            entry = self._waiting().entries[name]
            entry.message = replace(entry.message, due_time=until + TICK)
        return count
""",
        {
            "test_what_is_parked_is_not_fetched_and_keeps_its_due_time",
            "test_resuming_shows_all_of_it_step_by_step",
            "test_what_is_parked_is_found_as_paused",
        },
    ),
    "a stray stays parked": (
        """
class Broken(Memory):
    def unpark(self, at_most=2000, ahead=None):
        return super().unpark(at_most, ahead) if any(row.resuming for row in self.destinations()) else 0
""",
        {"test_what_is_parked_though_nothing_is_paused_is_shown"},
    ),
    "a resume slips in": (
        """
class Broken(Memory):
    @contextmanager
    def transaction(self):
        with super().transaction() as block:
            yield block
            self._waiting().destinations.settled = lambda message, now: message
""",
        {"test_no_resume_slips_in_between_a_look_and_parking"},
    ),
    "each handle has a limit of its own": (
        """
class Broken(Memory):
    def allowance(self, destination, wanted):
        shared = self._waiting().destinations
        everybodys, shared._buckets = shared._buckets, self.__dict__.setdefault("buckets", {})
        try:
            return super().allowance(destination, wanted)
        finally:
            shared._buckets = everybodys
""",
        {
            "test_less_than_one_a_second_is_one_at_a_time",
            "test_two_dispatchers_are_not_given_the_same_times",
            "test_no_more_are_granted_than_the_limit_says_whoever_asks",
            "test_many_at_the_same_moment_get_no_more_than_one",
        },
    ),
    "the others ask again at once": (
        """
class Broken(Memory):
    def allowance(self, destination, wanted):
        found = super().allowance(destination, wanted)
        return Allowance(granted=found.granted, later=[self.now()] * len(found.later))
""",
        {
            "test_a_seconds_messages_go_at_once_and_the_others_evenly_after_that",
            "test_less_than_one_a_second_is_one_at_a_time",
            "test_two_dispatchers_are_not_given_the_same_times",
        },
    ),
    "postponing counts as a failure": (
        """
class Broken(Memory):
    @contextmanager
    def transaction(self):
        with super().transaction() as block:
            block.postpone = block.increment_failure_counts
            yield block
""",
        {"test_postponed_messages_are_shown_then_at_no_failures_cost"},
    ),
    "reasons are not kept": (
        """
class Broken(Memory):
    @contextmanager
    def transaction(self):
        with super().transaction() as block:
            block.count_failures = lambda failures: sum(
                block.increment_failure_count(each.message, each.next_attempt) for each in failures
            )
            yield block
""",
        {
            "test_failures_are_shown_the_oldest_first",
            "test_many_failures_of_one_block_are_each_their_messages",
            "test_failures_stay_when_a_message_is_rescheduled",
            "test_a_long_reason_is_cut_and_on_one_line",
            "test_of_very_many_failures_the_last_are_kept",
            "test_times_of_failures_are_kept_in_utc",
            HISTORIES,
        },
    ),
    "heartbeats go by the dispatcher's clock": (
        """
class Broken(Memory):
    def heartbeat(self, record, done=()):
        super().heartbeat(record, done)
        self._waiting().dispatchers[record.dispatcher_id] = record
""",
        {
            "test_a_dispatcher_is_known_as_it_describes_itself",
            "test_who_says_nothing_for_long_is_dead_by_the_stores_clock",
        },
    ),
    "heartbeats of ingresses go by their own clock": (
        """
class Broken(Memory):
    def heartbeat_of_ingress(self, record):
        super().heartbeat_of_ingress(record)
        self._waiting().ingresses[record.ingress_id] = record
""",
        {
            "test_an_ingress_is_known_as_it_describes_itself",
            "test_of_a_queue_that_has_no_ingress_any_more_the_last_one_is_told",
        },
    ),
    "every ingress that died is told of": (
        """
class Broken(Memory):
    def ingresses(self):
        return sorted(self._waiting().ingresses.values(), key=lambda each: (each.queue, each.ingress_id))
""",
        {"test_of_a_queue_that_has_no_ingress_any_more_the_last_one_is_told"},
    ),
    "ingresses are dispatchers": (
        """
class Broken(Memory):
    def retire(self, dispatcher_id):
        super().retire(dispatcher_id)
        super().retire_ingress(dispatcher_id)
""",
        {"test_dispatchers_and_ingresses_are_told_apart"},
    ),
    "the last activity of a minute counts": (
        """
class Broken(Memory):
    def heartbeat(self, record, done=()):
        for each in done:
            self._waiting().activity.pop(each.minute, None)
        super().heartbeat(record, done)
""",
        {"test_what_dispatchers_did_adds_up_minute_by_minute"},
    ),
    "changes are told as they came": (
        """
class Broken(Memory):
    def changes(self, limit=100, before=None):
        entries = self._waiting().changes
        return [each for each in entries if before is None or each.at < before][:limit]
""",
        {"test_changes_are_told_the_newest_first"},
    ),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The tests that fail for each defect, of those that must."""
    modules = {defect: (HEAD + store + TAIL, expected) for defect, (store, expected) in BROKEN.items()}
    return failures(tmp_path_factory.mktemp("operable"), modules)


@pytest.mark.long
@pytest.mark.parametrize("defect", BROKEN)
def test_the_store_kit_finds_what_is_wrong_with_operations(found: dict[str, set[str]], defect: str) -> None:
    assert found[defect] == BROKEN[defect][1]
