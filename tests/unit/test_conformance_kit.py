"""The kit finds what is wrong: stores and transports, each broken in one way, and the tests that must then fail."""

import subprocess
import sys
from pathlib import Path

import pytest

from delaystore.errors import MissingDependencyError
from delaystore.testing import StoreCapabilities, StoreConformance

HEAD = """
from datetime import timedelta
import pytest
from hypothesis import Phase, settings
from delaystore.stores.memory import InMemoryDelayedMessageStore as Memory
from delaystore.stores.abc import ManagementOutcome, Page
from delaystore.testing import *
from delaystore.testing.kit import waiting
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind
from delaystore.transports.memory import InMemoryTransport
from dataclasses import replace
from contextlib import contextmanager
TICK = timedelta.resolution
settings.register_profile("unshrunk", phases=[Phase.generate], derandomize=True)
settings.load_profile("unshrunk")
waiting.DEADLINE = 5.0
"""
MACHINE = "test_random_histories_are_those_of_the_in_memory_store"
STORE_TAIL = """
class TestBroken(StoreConformance):
    capabilities = StoreCapabilities(transactions=True, batches=True, management=True)
    histories = 400

    @pytest.fixture
    def store_factory(self):
        return Broken().share
"""
TRANSPORT_TAIL = """
class TestBroken(TransportConformance):
    @pytest.fixture
    def transport_factory(self):
        transport = Broken()
        return lambda: transport
"""


def failures(folder: Path, module: str, *names: str) -> set[str]:
    """The tests that fail, of those whose name contains one of `names`, without their parameters."""
    path = folder / "test_broken.py"
    path.write_text(module)
    command = [sys.executable, "-m", "pytest", path, "--rootdir", folder, "-q", "-rfE", "--tb=no", "--no-header"]
    options = ["-p", "no:cacheprovider", "-k", " or ".join(names)]
    run = subprocess.run([*command, *options], capture_output=True, text=True, cwd=folder, timeout=250, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return {line.split("::")[2].split(" ")[0].partition("[")[0] for line in lines}


BROKEN_STORES = {
    "due means less than": (
        """
class Broken(Memory):
    def fetch_due(self, at, limit):
        return super().fetch_due(at - TICK, limit)
    @contextmanager
    def transaction(self):
        with super().transaction() as block:
            fetch = block.fetch_due
            block.fetch_due = lambda at, limit: fetch(at - TICK, limit)
            yield block
""",
        {"test_a_message_is_due_at_its_due_time_and_not_a_microsecond_sooner", "test_a_batch_is_due_at_its_due_time"},
    ),
    "a fetch does not claim": (
        """
class Broken(Memory):
    def fetch_due(self, at, limit):
        return [m for m in self.list(limit=limit).messages if m.attention_time <= at]
""",
        {"test_what_was_fetched_is_not_fetched_again", "test_a_claimed_message_is_its_claimers_alone"},
    ),
    "remove is always true": (
        """
class Broken(Memory):
    @contextmanager
    def transaction(self):
        with super().transaction() as block:
            remove = block.remove
            block.remove = lambda message: remove(message) or True
            yield block
""",
        {"test_a_removed_message_is_gone_and_removing_it_again_says_so", "test_removing_what_never_waited_says_so"},
    ),
    "a failure moves the due time": (
        """
class Broken(Memory):
    @contextmanager
    def transaction(self):
        with super().transaction() as block:
            def count(message, next_attempt=None):
                if not block.remove(message):
                    return False
                later = next_attempt or block.now()
                block.store(replace(message, due_time=later, failure_count=message.failure_count + 1))
                return True
            block.increment_failure_count = count
            yield block
""",
        {"test_a_failed_message_keeps_its_due_time_and_hides_until_its_next_attempt", "test_failures_add_up", MACHINE},
    ),
    "a duplicate replaces what waits": (
        """
class Broken(Memory):
    def store(self, message):
        self.cancel(message.message_id)
        super().store(message)
""",
        {"test_a_message_id_that_waits_is_refused_and_what_waits_is_unchanged", MACHINE},
    ),
    "a batch is stored up to its duplicate": (
        """
class Broken(Memory):
    def store_many(self, messages):
        return sum(super(Broken, self).store_many([message]) for message in messages)
""",
        {
            "test_a_duplicate_within_a_batch_stores_none_of_it",
            "test_a_duplicate_of_what_waits_stores_none_of_the_batch",
            "test_a_batch_that_breaks_off_stores_none_of_it",
            MACHINE,
        },
    ),
    "an exception does not undo": (
        """
class Broken(Memory):
    @contextmanager
    def transaction(self):
        block = self._begin()
        try:
            yield block
        finally:
            block.commit()
""",
        {
            "test_what_an_undone_block_stored_is_not_there",
            "test_what_an_undone_block_removed_is_found_again",
            "test_a_failure_that_an_undone_block_counted_does_not_count",
            MACHINE,
        },
    ),
    "claims end before the block": (
        """
class Broken(Memory):
    @contextmanager
    def transaction(self):
        yield self
    def fetch_due(self, at, limit):
        return [m for m in self.list(limit=1000).messages if m.attention_time <= at][:limit]
""",
        {
            "test_each_message_goes_to_one_dispatcher_alone",
            "test_what_a_block_fetched_stays_claimed_until_its_end",
            "test_two_open_blocks_never_share_a_message",
        },
    ),
    "microseconds are cut": (
        """
class Broken(Memory):
    @contextmanager
    def transaction(self):
        with super().transaction() as block:
            store = block.store_many
            block.store_many = lambda messages: store(
                [replace(m, due_time=m.due_time.replace(microsecond=0)) for m in messages])
            yield block
""",
        {
            "test_a_message_is_due_at_its_due_time_and_not_a_microsecond_sooner",
            "test_any_message_comes_back_as_it_went_in",
        },
    ),
    "numbers become floats": (
        """
class Broken(Memory):
    @contextmanager
    def transaction(self):
        with super().transaction() as block:
            store = block.store_many
            block.store_many = lambda messages: store([
                replace(m, headers={k: float(v) if type(v) is int else v for k, v in m.headers.items()})
                for m in messages])
            yield block
""",
        {"test_headers_and_properties_come_back_with_their_types", "test_any_message_comes_back_as_it_went_in"},
    ),
    "next forgets the failed": (
        """
class Broken(Memory):
    def next(self):
        return min((m.due_time for m in self.list(limit=10000).messages), default=None) if super().next() else None
""",
        {"test_a_failed_message_keeps_its_due_time_and_hides_until_its_next_attempt", MACHINE},
    ),
    "a page leaves out its instant": (
        """
class Broken(Memory):
    def list(self, *, after=None, **filters):
        page = super().list(after=after, **filters)
        if after is None:
            return page
        return Page([m for m in page.messages if m.attention_time != after.attention_time], page.next_key)
""",
        {"test_pages_cover_everything_once_also_of_one_instant"},
    ),
    "a claimed message can be cancelled": (
        """
class Broken(Memory):
    def cancel(self, message_id):
        outcome = super().cancel(message_id)
        return ManagementOutcome.DONE if outcome is ManagementOutcome.BEING_DISPATCHED else outcome
""",
        {
            "test_what_is_being_dispatched_is_shown_but_neither_cancelled_nor_rescheduled",
        },
    ),
    "rescheduling keeps the failures": (
        """
class Broken(Memory):
    def reschedule(self, message_id, due_time):
        message = self.get(message_id)
        outcome = super().reschedule(message_id, due_time)
        if outcome is ManagementOutcome.DONE:
            self._waiting().entries[message_id].message = replace(message, due_time=due_time, next_attempt=None)
        return outcome
""",
        {"test_a_rescheduled_message_is_due_then_as_if_it_had_never_failed", MACHINE},
    ),
}


@pytest.mark.parametrize("defect", BROKEN_STORES)
def test_the_store_kit_finds(tmp_path: Path, defect: str) -> None:
    store, expected = BROKEN_STORES[defect]
    assert failures(tmp_path, HEAD + store + STORE_TAIL, *expected) == expected


BROKEN_TRANSPORTS = {
    "one outcome for all": (
        """
class Broken(InMemoryTransport):
    def send(self, messages, transaction, timeout):
        return super().send(messages, transaction, timeout)[:1] * len(messages)
""",
        {"test_a_missing_queue_is_the_fault_of_its_message_alone"},
    ),
    "a missing queue ends the batch": (
        """
class Broken(InMemoryTransport):
    def send(self, messages, transaction, timeout):
        outcomes = []
        for message in messages:
            outcomes += super().send([message], transaction, timeout)
            if outcomes[-1] != DELIVERED:
                break
        return outcomes + [Outcome(OutcomeKind.UNSETTLED, "gone")] * (len(messages) - len(outcomes))
""",
        {"test_a_missing_queue_is_the_fault_of_its_message_alone"},
    ),
    "what was received is lost when the block raises": (
        """
class Broken(InMemoryTransport):
    def _settle(self, source, count, returned):
        super()._settle(source, count, [])
""",
        {"test_what_was_received_goes_back_when_the_block_raises"},
    ),
    "instants are cut to seconds": (
        """
class Broken(InMemoryTransport):
    def send(self, messages, transaction, timeout):
        cut = [replace(m, properties={k: v.replace(microsecond=0) if k == "timestamp" else v
                                      for k, v in m.properties.items()}) for m in messages]
        return super().send(cut, transaction, timeout)
""",
        {"test_what_passes_the_check_arrives_as_it_was_sent"},
    ),
    "closing loses the messages": (
        """
class Broken(InMemoryTransport):
    def close(self):
        for queue in self._queues.values():
            queue.messages.clear()
""",
        {"test_it_is_closed_twice_and_used_again"},
    ),
}


@pytest.mark.parametrize("defect", BROKEN_TRANSPORTS)
def test_the_transport_kit_finds(tmp_path: Path, defect: str) -> None:
    transport, expected = BROKEN_TRANSPORTS[defect]
    names = {*expected, "test_what_is_sent_is_received"}
    assert failures(tmp_path, HEAD + transport + TRANSPORT_TAIL, *names) == expected


def test_capabilities_decide_which_tests_there_are() -> None:
    class Least(StoreConformance):
        pass

    class Most(Least):
        capabilities = StoreCapabilities(transactions=True)

    name = "test_what_an_undone_block_stored_is_not_there"
    assert getattr(Least, name) is None
    assert callable(getattr(Most, name))


@pytest.mark.parametrize("library", ["pytest", "hypothesis"])
def test_without_the_extra_the_clock_and_the_recording_transport_still_import(library: str) -> None:
    program = f"""
import sys
sys.modules[{library!r}] = None
from delaystore.testing import RecordingTransport, SettableClock
try:
    from delaystore.testing import StoreConformance
except {MissingDependencyError.__module__}.MissingDependencyError as error:
    print(error)
"""
    program = "import delaystore.errors\n" + program
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert f"needs the library {library}" in run.stdout
    assert "delaystore[testing]" in run.stdout
