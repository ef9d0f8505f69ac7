"""The kit finds what is wrong: stores and transports, each broken in one way, and the tests that must then fail."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from delaystore.errors import MissingDependencyError
from delaystore.testing import StoreCapabilities, StoreConformance, TransportConformance

pytestmark = pytest.mark.long  # stores and tests of users have the kit; it changes seldom

HEAD = """
from datetime import timedelta
import pytest
from hypothesis import Phase, settings
from delaystore.stores.memory import InMemoryDelayedMessageStore as Memory
from delaystore.stores.abc import ManagementOutcome, Page
from delaystore.testing import *
from delaystore.testing._kit import _base as waiting
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind
from delaystore.transports.memory import InMemoryTransport
from dataclasses import replace
from contextlib import contextmanager
TICK = timedelta.resolution
settings.register_profile("unshrunk", phases=[Phase.generate], derandomize=True)
settings.load_profile("unshrunk")
waiting.DEADLINE = 2.0
"""
MACHINE = "test_random_histories_are_those_of_the_in_memory_store"
STORE_TAIL = """
class TestBroken(StoreConformance):
    capabilities = StoreCapabilities(transactions=True, batches=True, management=True, latest_deliveries=True)
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


def failures(folder: Path, modules: dict[str, tuple[str, set[str]]]) -> dict[str, set[str]]:
    """The tests that fail in each module, of those whose name contains one of the module's names; no parameters.

    One process runs them all: starting it takes longer than the tests of a module.
    """
    chosen, files = [], {}
    for number, (name, (module, names)) in enumerate(modules.items()):
        files[f"test_{number:03}.py"] = name
        (folder / f"test_{number:03}.py").write_text(module)
        chosen.append(f"test_{number:03} and ({' or '.join(names)})")
    command = [sys.executable, "-m", "pytest", folder, "--rootdir", folder, "-q", "-rfE", "--tb=no", "--no-header"]
    options = ["-p", "no:cacheprovider", "-k", " or ".join(chosen)]
    run = subprocess.run([*command, *options], capture_output=True, text=True, cwd=folder, timeout=250, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found: dict[str, set[str]] = {name: set() for name in modules}
    for line in run.stdout.splitlines():
        if line.startswith(("FAILED", "ERROR")):
            file, _, test = line.split(" ", 1)[1].split("::")
            found[files[file]].add(test.split(" ")[0].partition("[")[0])
    return found


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
        return [m for m in self.list(limit=limit).messages if m.next_attempt <= at]
""",
        {"test_what_was_fetched_is_not_fetched_again", "test_a_claimed_message_is_its_claimers_alone"},
    ),
    "a store keeps no latest delivery": (
        """
class Broken(Memory):
    def store_many(self, messages, *rest, **more):
        return super().store_many([replace(each, not_after=None) for each in messages], *rest, **more)
""",
        {"test_it_comes_back_and_others_have_none", "test_a_new_due_time_moves_it"},
    ),
    "a reschedule leaves the latest delivery as it is": (
        """
class Broken(Memory):
    def reschedule(self, message_id, due_time, **more):
        limit = self.get(message_id).not_after
        outcome = super().reschedule(message_id, due_time, **more)
        entry = self._waiting().entries[message_id]
        if limit is not None and limit >= due_time:
            entry.message = replace(entry.message, not_after=limit)
        return outcome
""",
        {"test_a_new_due_time_moves_it"},
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
                count = message.failure_count + 1
                block.store(replace(message, due_time=later, next_attempt=later, failure_count=count))
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
        {"test_a_message_id_that_waits_is_refused_and_only_the_due_time_of_what_waits_is_marked", MACHINE},
    ),
    "a duplicate leaves no mark": (
        """
class Broken(Memory):
    def store_many(self, messages):
        waiting = dict(self._waiting().entries)
        due = {name: entry.message.due_time for name, entry in waiting.items()}
        try:
            return super().store_many(messages)
        finally:
            for name, entry in waiting.items():
                entry.message = replace(entry.message, due_time=due[name])
""",
        {
            "test_a_message_id_that_waits_is_refused_and_only_the_due_time_of_what_waits_is_marked",
            "test_a_duplicate_marks_only_the_due_time_of_what_waited",
        },
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
        block = self._begin("begin another one")
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
        return [m for m in self.list(limit=1000).messages if m.next_attempt <= at][:limit]
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
        return Page([m for m in page.messages if m.next_attempt != after.next_attempt], page.next_key)
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
            self._waiting().entries[message_id].message = replace(message, due_time=due_time, next_attempt=due_time)
        return outcome
""",
        {"test_a_rescheduled_message_is_due_then_as_if_it_had_never_failed", MACHINE},
    ),
}


@pytest.fixture(scope="module")
def found_in_stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The tests that fail for each defect."""
    modules = {name: (HEAD + store + STORE_TAIL, expected) for name, (store, expected) in BROKEN_STORES.items()}
    return failures(tmp_path_factory.mktemp("stores"), modules)


@pytest.mark.parametrize("defect", BROKEN_STORES)
def test_the_store_kit_finds(found_in_stores: dict[str, set[str]], defect: str) -> None:
    assert found_in_stores[defect] == BROKEN_STORES[defect][1]


WORKING_TRANSPORT = """
import threading
from contextlib import contextmanager
from delaystore.testing._kit import _transport_parts as parts
parts.DELAY = timedelta(seconds=1)
parts.TIMEOUT = 0.1
waiting.DEADLINE = 3.0

class Working(InMemoryTransport):
    longest_native_delay = timedelta(minutes=1)
    reason = None

    def send(self, messages, transaction, timeout):
        if self.reason is not None:
            return [Outcome(OutcomeKind.UNCONFIRMED, self.reason)] * len(messages)
        return super().send(messages, transaction, timeout)

    def send_delayed(self, messages, now, timeout):
        if self.reason is not None:
            return [Outcome(OutcomeKind.UNCONFIRMED, self.reason)] * len(messages)
        return [self.delay(message, message.due_time - now) for message in messages]

    def delay(self, message, span):
        if span > self.longest_native_delay:
            return Outcome(OutcomeKind.NOT_DELAYABLE, "too far")
        threading.Timer(span.total_seconds(), self.send, [[message], None, 1]).start()
        return DELIVERED

    def unavailable(self):
        return self.reason
"""
DELAYING_TAIL = """
class TestBroken(TransportConformance):
    capabilities = TransportCapabilities(native_delays=True, outages=True, availability=True)

    @pytest.fixture
    def one(self):
        return Broken()

    @pytest.fixture
    def transport_factory(self, one):
        return lambda: one

    @pytest.fixture
    def outage(self, one):
        @contextmanager
        def away():
            one.reason = "no connection"
            yield
            one.reason = None
        return away
"""
DELAYED = "test_delayed_messages_arrive_when_they_are_due_and_not_before"
COMES_BACK = "test_what_cannot_be_delayed_natively_comes_back_and_is_not_sent"
SAYS_WHETHER = "test_a_transport_says_whether_it_delays_natively"
NOTHING_TO_DELAY = "test_nothing_to_delay_has_no_outcomes"
PASSES = "test_an_outage_leaves_all_unconfirmed_and_passes"
SAYS_WHY = "test_a_transport_says_why_it_cannot_send_and_when_it_can_again"
ALL_OF_DELAYS_AND_OUTAGES = {DELAYED, COMES_BACK, SAYS_WHETHER, NOTHING_TO_DELAY, PASSES, SAYS_WHY}
BROKEN_DELAYS_AND_OUTAGES: dict[str, tuple[str, set[str]]] = {
    "it is sound": ("class Broken(Working): pass", set()),
    "delayed messages arrive at once": (
        """
class Broken(Working):
    def delay(self, message, span):
        return super().delay(message, min(span, timedelta(0)) if span < self.longest_native_delay else span)
""",
        {DELAYED},
    ),
    "delayed messages lose their headers": (
        """
class Broken(Working):
    def delay(self, message, span):
        return super().delay(replace(message, headers={}), span)
""",
        {DELAYED},
    ),
    "delayed messages get lost": (
        """
class Broken(Working):
    def delay(self, message, span):
        return DELIVERED if span < self.longest_native_delay else super().delay(message, span)
""",
        {DELAYED, COMES_BACK},
    ),
    "what is too far is delayed all the same": (
        """
class Broken(Working):
    def delay(self, message, span):
        return super().delay(message, min(span, timedelta(seconds=1)))
""",
        {DELAYED, COMES_BACK},
    ),
    "one message that is too far ends the batch": (
        """
class Broken(Working):
    def send_delayed(self, messages, now, timeout):
        outcomes = super().send_delayed(messages, now, timeout)
        far = Outcome(OutcomeKind.NOT_DELAYABLE, "too far")
        return [far] * len(messages) if far in outcomes else outcomes
""",
        {COMES_BACK},
    ),
    "what is too far comes back without a reason": (
        """
class Broken(Working):
    def delay(self, message, span):
        outcome = super().delay(message, span)
        return outcome if outcome is DELIVERED else Outcome(outcome.kind)
""",
        {COMES_BACK},
    ),
    "it hides its native delays": ("class Broken(Working): longest_native_delay = None", {SAYS_WHETHER}),
    "nothing to delay is one outcome": (
        """
class Broken(Working):
    def send_delayed(self, messages, now, timeout):
        return super().send_delayed(messages, now, timeout) or [DELIVERED]
""",
        {NOTHING_TO_DELAY},
    ),
    "an outage is raised": (
        """
class Broken(Working):
    def send(self, messages, transaction, timeout):
        if self.reason is not None:
            raise ConnectionError(self.reason)
        return super().send(messages, transaction, timeout)
""",
        {PASSES},
    ),
    "an outage is raised by send_delayed": (
        """
class Broken(Working):
    def send_delayed(self, messages, now, timeout):
        if self.reason is not None:
            raise ConnectionError(self.reason)
        return super().send_delayed(messages, now, timeout)
""",
        {PASSES},
    ),
    "what is sent in an outage counts as delivered": (
        """
class Broken(Working):
    def send(self, messages, transaction, timeout):
        super().send(messages, transaction, timeout)
        return [DELIVERED] * len(messages)
""",
        {PASSES},
    ),
    "it gives no reason for what is unconfirmed": (
        """
class Broken(Working):
    def send(self, messages, transaction, timeout):
        return [Outcome(outcome.kind) for outcome in super().send(messages, transaction, timeout)]
""",
        {PASSES},
    ),
    "it never sends again": (
        """
class Broken(Working):
    dead = False
    def send(self, messages, transaction, timeout):
        self.dead = self.dead or self.reason is not None
        if self.dead:
            return [Outcome(OutcomeKind.UNCONFIRMED, "no connection")] * len(messages)
        return super().send(messages, transaction, timeout)
""",
        {PASSES},
    ),
    "it does not say that there is an outage": (
        """
class Broken(Working):
    def unavailable(self):
        return None
""",
        {SAYS_WHY},
    ),
    "it does not say why there is an outage": (
        """
class Broken(Working):
    def unavailable(self):
        return None if self.reason is None else ""
""",
        {SAYS_WHY},
    ),
    "it believes that an outage never ends": (
        """
class Broken(Working):
    seen = None
    def unavailable(self):
        self.seen = self.seen or self.reason
        return self.seen
""",
        {SAYS_WHY},
    ),
}


def test_the_transport_kit_finds_what_is_wrong_with_delays_and_outages(tmp_path: Path) -> None:
    """All in one run, each transport with the tests that it fails; the sound one with all of them."""
    module, tests, expected = HEAD + WORKING_TRANSPORT, [], {}
    for number, (defect, (transport, failing)) in enumerate(BROKEN_DELAYS_AND_OUTAGES.items()):
        module += (transport + "\n" + DELAYING_TAIL).replace("Broken", f"Broken{number}")
        tests += [f"TestBroken{number}::{name}" for name in failing or ALL_OF_DELAYS_AND_OUTAGES]
        expected |= {f"TestBroken{number}::{name}": defect for name in failing}
    path = tmp_path / "test_broken.py"
    path.write_text(module)
    command = [sys.executable, "-m", "pytest", "--rootdir", tmp_path, "-q", "-rfE", "--tb=no", "--no-header"]
    command += ["-p", "no:cacheprovider", *(f"{path}::{test}" for test in tests)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=250, check=False)
    lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    failed = {line.partition("::")[2].split(" ")[0] for line in lines}
    assert {test: expected.get(test, "it is sound") for test in failed} == expected, run.stdout + run.stderr


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
        return outcomes + [Outcome(OutcomeKind.UNCONFIRMED, "gone")] * (len(messages) - len(outcomes))
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


@pytest.fixture(scope="module")
def found_in_transports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The tests that fail for each defect."""
    modules = {
        name: (HEAD + transport + TRANSPORT_TAIL, {*expected, "test_what_is_sent_is_received"})
        for name, (transport, expected) in BROKEN_TRANSPORTS.items()
    }
    return failures(tmp_path_factory.mktemp("transports"), modules)


@pytest.mark.parametrize("defect", BROKEN_TRANSPORTS)
def test_the_transport_kit_finds(found_in_transports: dict[str, set[str]], defect: str) -> None:
    assert found_in_transports[defect] == BROKEN_TRANSPORTS[defect][1]


def test_capabilities_decide_which_tests_there_are() -> None:
    class Least(StoreConformance):
        pass

    class Most(Least):
        capabilities = StoreCapabilities(transactions=True)

    name = "test_what_an_undone_block_stored_is_not_there"
    assert getattr(Least, name) is None
    assert callable(getattr(Most, name))


@pytest.mark.parametrize("kit", [StoreConformance, TransportConformance])
def test_no_test_hides_another(kit: type) -> None:
    names = Counter(name for base in kit.__mro__[1:] for name in vars(base) if name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


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
    assert "'.[testing]'" in run.stdout
