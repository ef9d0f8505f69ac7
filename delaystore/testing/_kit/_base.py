"""Shared parts of the conformance kit's tests: messages, waiting, the base classes."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar, Final

import pytest
from hypothesis import strategies as st

from delaystore.filters import EVERYTHING, MessageFilter
from delaystore.message import (
    EARLIEST_DUE_TIME,
    LATEST_DUE_TIME,
    PROPERTY_RANGES,
    PROPERTY_TYPES,
    DelayedMessage,
    Position,
    marked,
    new_message_id,
)
from delaystore.settings import TransactionMode
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.operable import OperableDelayedMessageStore, OperableTransaction
from delaystore.testing._capabilities import SelectedByCapabilities, StoreCapabilities

StoreFactory = Callable[[], DelayedMessageStore]
ENDPOINT = "conformance"


def opened(factory: StoreFactory) -> DelayedMessageStore:
    """A store from `factory`, ready for use."""
    store = factory()
    store.initialize(ENDPOINT, TransactionMode.RECEIVE_ONLY)
    store.setup_infrastructure()
    return store


class StoreTests(SelectedByCapabilities):
    """The fixtures. Authors override `store_factory`, and each of those below it if its flag is set."""

    capabilities: ClassVar[StoreCapabilities] = StoreCapabilities()

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        """Each call makes another store, uninitialized, on the same storage, which is empty at first."""
        raise NotImplementedError("override the fixture store_factory")

    @pytest.fixture
    def open_elsewhere(self) -> StoreFactory:
        """For `other_processes`: a picklable function (a functools.partial will do) that is a store_factory."""
        raise NotImplementedError("the flag other_processes asks for the fixture open_elsewhere")

    @pytest.fixture
    def hostile_store_factory(self) -> StoreFactory:
        """For `hostile_sessions`: a store_factory on the same storage, with sessions in a distant time zone."""
        raise NotImplementedError("the flag hostile_sessions asks for the fixture hostile_store_factory")

    @pytest.fixture
    def corrupt(self) -> Callable[[str], None]:
        """For `unreadable_rows`: makes the stored headers of the message of that id undecodable."""
        raise NotImplementedError("the flag unreadable_rows asks for the fixture corrupt")

    @pytest.fixture
    def end_leases(self) -> Callable[[], None]:
        """For `ending_leases`: makes every lease end now, as if its time had passed."""
        raise NotImplementedError("the flag ending_leases asks for the fixture end_leases")

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        """For `operations`: makes this number of seconds pass on the store's clock. This one waits for them."""
        return time.sleep

    @pytest.fixture
    def opened_stores(self) -> Iterator[list[DelayedMessageStore]]:
        """The stores to close after the test."""
        stores: list[DelayedMessageStore] = []
        yield stores
        for store in stores:
            store.close()

    @pytest.fixture
    def open_store(self, store_factory: StoreFactory, opened_stores: list[DelayedMessageStore]) -> StoreFactory:
        """Opens one more store on the storage, initialized and set up."""

        def open_one() -> DelayedMessageStore:
            opened_stores.append(store := opened(store_factory))
            return store

        return open_one

    @pytest.fixture
    def store(self, open_store: StoreFactory) -> DelayedMessageStore:
        """The store under test."""
        return open_store()

    @pytest.fixture
    def other(self, open_store: StoreFactory) -> DelayedMessageStore:
        """Another store on the same storage, as in another process."""
        return open_store()

    @pytest.fixture
    def managed(self, store: DelayedMessageStore) -> ManagedDelayedMessageStore:
        """The store under test, as a ManagedDelayedMessageStore."""
        assert isinstance(store, ManagedDelayedMessageStore), "the flag management is for a ManagedDelayedMessageStore"
        return store

    @pytest.fixture
    def operable(self, store: DelayedMessageStore) -> OperableDelayedMessageStore:
        """The store under test, as an OperableDelayedMessageStore."""
        return as_operable(store)

    @pytest.fixture
    def colleague(self, other: DelayedMessageStore) -> OperableDelayedMessageStore:
        """The other store, as an OperableDelayedMessageStore."""
        return as_operable(other)


def as_operable(store: DelayedMessageStore) -> OperableDelayedMessageStore:
    """`store` as an OperableDelayedMessageStore."""
    assert isinstance(store, OperableDelayedMessageStore), "the flag operations is for an OperableDelayedMessageStore"
    return store


NOON: Final = datetime(2031, 1, 1, 12, tzinfo=UTC)
"""An instant in the future: no message becomes due during a test."""
TICK: Final = timedelta.resolution
"""The microsecond that decides between due and not due."""
SECOND: Final = timedelta(seconds=1)
FAR: Final = NOON + timedelta(days=1)


class Undone(Exception):  # noqa: N818 - raised by the tests on purpose, it is no error
    """Ends a block that shall be undone."""


def a_message(message_id: str | None = None, due_time: datetime = NOON, **fields: Any) -> DelayedMessage:
    """A message; name only the fields that matter."""
    defaults: dict[str, Any] = {"destination": "billing", "body": b"body"}
    return DelayedMessage(message_id=message_id or new_message_id(), due_time=due_time, **(defaults | fields))


def reported(message: DelayedMessage, times: int = 1) -> DelayedMessage:
    """`message`, as the store keeps it after `times` senders got the answer that it waits."""
    for _ in range(times):
        message = dataclasses.replace(message, due_time=marked(message.due_time))
    return message


def some_messages(count: int, due_time: datetime = NOON, step: timedelta = SECOND) -> list[DelayedMessage]:
    """`m0`, `m1`, ..., the first due at `due_time`, the others `step` apart."""
    return [a_message(f"m{number}", due_time + number * step) for number in range(count)]


def ids(messages: Sequence[DelayedMessage]) -> list[str]:
    """The message_ids of `messages`, in their order."""
    return [message.message_id for message in messages]


def claimed(store: DelayedMessageStore, at: datetime = NOON) -> DelayedMessage:
    """The first message due at `at`, now claimed; fails if there is none."""
    message = store.fetch_next_due_timeout(at)
    assert message is not None
    return message


def taken(store: DelayedMessageStore, at: datetime, limit: int = 1000) -> Sequence[DelayedMessage]:
    """The messages that one block fetches and removes."""
    with store.transaction() as transaction:
        messages = transaction.fetch_due(at, limit)
        assert transaction.remove_many(messages) == len(messages)
    return messages


def all_taken(store: DelayedMessageStore, at: datetime) -> list[DelayedMessage]:
    """The messages that blocks fetch and remove until none is due, in the order fetched."""
    messages: list[DelayedMessage] = []
    while some := taken(store, at):
        messages += some
    return messages


def assert_same(actual: DelayedMessage | None, expected: DelayedMessage) -> None:
    """Fail, naming the field, unless `actual` is `expected`, types included."""
    assert actual is not None, f"{expected.message_id!r} was not found"
    assert type(actual) is type(expected), actual
    for field in dataclasses.fields(expected):
        assert exactly(getattr(actual, field.name)) == exactly(getattr(expected, field.name)), field.name
    assert actual.due_time.utcoffset() == timedelta(0)


def assert_only(actual: Sequence[DelayedMessage], expected: DelayedMessage) -> None:
    """Fail unless `actual` is `expected` and nothing else."""
    assert ids(actual) == [expected.message_id]
    assert_same(actual[0], expected)


def exactly(value: Any, *, scale: bool = True) -> Any:
    """`value` in a form that is equal only for equal types, signs, exponents and NaNs.

    `scale`: whether a Decimal's trailing zeros count, too, and the sign of a zero.
    """
    if isinstance(value, Mapping):
        return {name: exactly(item, scale=scale) for name, item in value.items()}
    if isinstance(value, list):
        return [exactly(item, scale=scale) for item in value]
    if isinstance(value, datetime):
        return "datetime", value.astimezone(UTC)
    if isinstance(value, float) or (isinstance(value, Decimal) and (scale or value.is_nan())):
        return type(value).__name__, str(value)
    return type(value).__name__, value


_EARLIEST: Final = datetime(1, 1, 2)  # noqa: DTZ001 - hypothesis takes naive bounds
_LATEST: Final = LATEST_DUE_TIME.replace(tzinfo=None)
_ZONES: Final = st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30)), timezone(timedelta(hours=14))])


def instants() -> st.SearchStrategy[datetime]:
    """Aware datetimes that every message may hold."""
    found = st.datetimes(_EARLIEST, _LATEST - timedelta(days=1), timezones=_ZONES)
    return found.filter(lambda instant: instant >= EARLIEST_DUE_TIME)  # the zone east of UTC has the first day earlier


def texts(max_bytes: int) -> st.SearchStrategy[str]:
    """Texts that may be a message_id: not empty, without NUL, at most `max_bytes` of UTF-8."""
    return _short(st.characters(codec="utf-8", exclude_characters="\0"), max_bytes)


def queue_names(max_bytes: int) -> st.SearchStrategy[str]:
    """As `texts`, but without control characters: texts that may be a destination, and no address."""
    names = _short(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_bytes)
    return names.filter(lambda text: not text.startswith("/"))


def _short(characters: st.SearchStrategy[str], max_bytes: int) -> st.SearchStrategy[str]:
    return st.text(characters, min_size=1, max_size=max_bytes).filter(lambda text: len(text.encode()) <= max_bytes)


def header_values() -> st.SearchStrategy[Any]:
    """Everything a header may hold, nested."""
    numbers = st.one_of(st.booleans(), st.integers(), st.integers(2**63, 2**200), st.floats(), st.decimals())
    plain = st.one_of(st.none(), numbers, st.text(), st.binary(), instants())
    names = st.one_of(st.text(), st.sampled_from(["$bytes", "$map", "$type", "__proto__", ""]))
    return st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=8)


def properties() -> st.SearchStrategy[dict[str, Any]]:
    """AMQP properties, some or none."""
    by_type: dict[type, st.SearchStrategy[Any]] = {str: st.text(), int: st.integers(), datetime: instants()}
    by_name = {name: by_type[kind] for name, kind in PROPERTY_TYPES.items()}
    by_name |= {name: st.sampled_from(allowed) for name, allowed in PROPERTY_RANGES.items()}
    return st.fixed_dictionaries({}, optional=by_name)


def messages() -> st.SearchStrategy[DelayedMessage]:
    """Messages with everything a message may hold."""
    return st.builds(
        DelayedMessage,
        message_id=texts(255),
        destination=queue_names(255),
        due_time=instants(),
        body=st.binary(),
        headers=st.dictionaries(st.text(), header_values(), max_size=5),
        properties=properties(),
        failure_count=st.integers(0, 1000),
        next_attempt=st.none() | instants(),
    )


DEADLINE = 60.0
"""Seconds."""
_SOON: Final = timedelta(minutes=1)


def eventually(holds: Callable[[], bool], what: str, deadline: float | None = None) -> None:
    """Return once `holds()`; fail, saying `what`, when it does not within `deadline` seconds (None: DEADLINE)."""
    deadline = DEADLINE if deadline is None else deadline
    end = time.monotonic() + deadline
    while not holds():
        assert time.monotonic() < end, f"not within {deadline:g} s: {what}"
        time.sleep(0.02)


def eventually_next(store: DelayedMessageStore, expected: datetime | None) -> None:
    """Fail unless `next()` is `expected`.

    For a moment it may be about now instead: a store may ask for another pass over skipped messages, which then
    finds nothing. A later time would make a message late.
    """

    def holds() -> bool:
        found = store.next()
        if found == expected:
            return True
        assert found is not None, f"next() is None, though a message waits for {expected}"
        assert expected is None or found < expected, f"next() is {found}, too late for the message of {expected}"
        assert found <= store.now() + _SOON, f"next() is {found}, though nothing waits before {expected}"
        return False

    eventually(holds, f"next() == {expected}")


MOST_STEPS = 1_000
"""More than any test needs: a step that is made again and again shall end it."""
HOUR = timedelta(hours=1)
ME = "jürgen@desk-4"


@contextmanager
def block_of(store: OperableDelayedMessageStore) -> Iterator[OperableTransaction]:
    """A block of `transaction()`, as an OperableTransaction."""
    with store.transaction() as block:
        assert isinstance(block, OperableTransaction), (
            "transaction() of an operable store yields an OperableTransaction"
        )
        yield block


@contextmanager
def claims_of(store: OperableDelayedMessageStore) -> Iterator[tuple[OperableTransaction, list[DelayedMessage]]]:
    """A block, and the messages that it has claimed: all that are free, in batches if the store has any.

    A block may be shown again the messages that it has locked.
    """
    with block_of(store) as block:
        messages: dict[str, DelayedMessage] = {}
        while fresh := [each for each in block.fetch_due(FAR, 1000) if each.message_id not in messages]:
            messages |= {each.message_id: each for each in fresh}
        yield block, list(messages.values())


def search_all(
    store: OperableDelayedMessageStore, wanted: MessageFilter = EVERYTHING, *, limit: int = 100, examine: int = 1000
) -> Sequence[DelayedMessage]:
    """The messages of all pages of a search, each key through its text."""
    found: list[DelayedMessage] = []
    after: Position | None = None
    while True:
        page = store.search(wanted, after=after, limit=limit, examine=examine)
        assert len(page.messages) <= limit
        found += page.messages
        if page.next_key is None:
            return found
        assert after is None or page.next_key > after, "a page leads further than the one before"
        after = Position.parse(str(page.next_key))


def repeated(step: Callable[[], int]) -> int:
    """The sum of the results of `step`, until one is 0."""
    total = 0
    for _ in range(MOST_STEPS):
        some = step()
        if not some:
            return total
        total += some
    raise AssertionError(f"there was still something to do after {MOST_STEPS} steps")
