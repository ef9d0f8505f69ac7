"""The headers that a dispatcher adds to the messages it forwards, as the setting `added_headers` says."""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from delaystore.dispatcher import DispatchReport
from delaystore.dispatcher._forwarding import MOST_LOADS, HeaderAdder
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.errors import DuplicateMessageError, StoreUnavailableError, UnsupportedMessageError
from delaystore.message import DelayedMessage, unmarked
from delaystore.settings import AddedHeader
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.memory._transaction import InMemoryTransaction
from delaystore.testing import SettableClock
from delaystore.text import DUE_TIME
from delaystore.transports.abc import DELIVERED, Outcome
from tests.dispatching import (
    NOON,
    REFUSED,
    UNROUTABLE,
    CountingStore,
    FiveMethodStore,
    ScriptedTransport,
    message,
    settings,
)

NOON_TEXT = "2027-01-01T12:00:00+00:00"


def dispatcher_of(store: DelayedMessageStore, transport: ScriptedTransport, **changes: Any) -> Dispatcher:
    return Dispatcher(store, transport, settings(**changes), endpoint="sales")


class NativeTransport(ScriptedTransport):
    """Keeps the messages that it is to delay."""

    longest_native_delay = timedelta(days=1)

    def __init__(self) -> None:
        super().__init__()
        self.handed_over: list[DelayedMessage] = []

    def send_delayed(self, messages: Sequence[DelayedMessage], now: datetime, timeout: float) -> Sequence[Outcome]:
        self.handed_over += messages
        return [DELIVERED] * len(messages)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What the store is asked about loads: the messages `a` are of the load 7, which is called spring."""
    asked: dict[str, list[Any]] = {"messages": [], "numbers": []}

    def loads_of(_: object, message_ids: Sequence[str], numbers: Collection[int] | None = None) -> Mapping[str, int]:
        asked["messages"].append(list(message_ids))
        return {message_id: 7 for message_id in message_ids if message_id.startswith("a")}

    def load_ids(_: object, numbers: Collection[int]) -> Mapping[int, str]:
        asked["numbers"].append(set(numbers))
        return {number: "spring" for number in numbers if number == 7}

    monkeypatch.setattr(InMemoryTransaction, "loads_of", loads_of)
    monkeypatch.setattr(InMemoryTransaction, "load_ids", load_ids)
    return asked


def test_by_default_none_is_added_and_the_store_is_asked_nothing(
    store: CountingStore, transport: ScriptedTransport, loads: dict[str, list[Any]]
) -> None:
    store.store(message("a", headers={"kind": "reminder"}))
    dispatcher_of(store, transport).dispatch_due()
    (sent,) = transport.sent
    assert sent.headers == {"kind": "reminder"}
    assert loads == {"messages": [], "numbers": []}


@pytest.mark.parametrize(
    ("chosen", "headers"),
    [
        ("due-time", {"delaystore.due-time": NOON_TEXT}),
        ("attempt", {"delaystore.attempt": 1}),
        ("sent-at", {"delaystore.sent-at": "2027-01-01T12:30:00"}),
        ("load", {"delaystore.load": "spring"}),
        (["attempt", "due-time"], {"delaystore.due-time": NOON_TEXT, "delaystore.attempt": 1}),
    ],
)
def test_each_header_has_its_value(
    store: CountingStore,
    transport: ScriptedTransport,
    clock: SettableClock,
    loads: dict[str, list[Any]],
    chosen: Any,
    headers: dict[str, Any],
) -> None:
    store.store(message("a", headers={"kind": "reminder"}))
    clock.advance(1800)
    dispatcher_of(store, transport, added_headers=chosen).dispatch_due()
    (sent,) = transport.sent
    if chosen == "sent-at":
        found = sent.headers["delaystore.sent-at"]
        assert found.startswith(headers["delaystore.sent-at"])
        assert found.endswith("+00:00")
    else:
        assert sent.headers == {"kind": "reminder", **headers}
    assert loads["messages"] == ([["a"]] if chosen == "load" else [])


def test_the_names_of_the_headers() -> None:
    assert [each.header for each in AddedHeader] == [
        "delaystore.due-time",
        "delaystore.attempt",
        "delaystore.sent-at",
        "delaystore.load",
    ]
    assert AddedHeader.DUE_TIME.header == DUE_TIME


def test_a_header_that_the_message_has_stays(store: CountingStore, transport: ScriptedTransport) -> None:
    own = {"delaystore.attempt": "mine", "delaystore.due-time": None}
    store.store(message("a", headers=own))
    dispatcher_of(store, transport, added_headers="attempt,due-time").dispatch_due()
    (sent,) = transport.sent
    assert sent.headers == own


def test_attempts_count_on_and_the_due_time_stays_the_senders(
    store: CountingStore, transport: ScriptedTransport, clock: SettableClock
) -> None:
    store.store(message("a"))
    with pytest.raises(DuplicateMessageError):
        store.store(message("a"))  # which marks the due time of the message that waits
    transport.outcomes["billing"] = REFUSED
    dispatcher = dispatcher_of(store, transport, added_headers="all")
    assert dispatcher.dispatch_due() == DispatchReport(fetched=1, failed=1)
    (before,) = [sent.headers for sent, _ in transport.attempts]
    assert (before["delaystore.attempt"], before["delaystore.due-time"]) == (1, NOON_TEXT)
    transport.outcomes.clear()
    clock.advance(4000)
    dispatcher.dispatch_due()
    (sent,) = transport.sent
    assert sent.headers["delaystore.attempt"] == 2


@pytest.mark.parametrize("fits", [True, False])
def test_a_message_without_room_is_forwarded_as_it_is(
    store: CountingStore, transport: ScriptedTransport, fits: bool
) -> None:
    transport.check_error = lambda sent: (
        UnsupportedMessageError("full") if not fits and "delaystore.attempt" in sent.headers else None
    )
    store.store(message("a", headers={"kind": "reminder"}))
    assert dispatcher_of(store, transport, added_headers="attempt").dispatch_due().delivered == 1
    (sent,) = transport.sent
    assert ("delaystore.attempt" in sent.headers) is fits


def test_a_copy_in_the_error_queue_has_none(store: CountingStore, transport: ScriptedTransport) -> None:
    transport.outcomes["billing"] = UNROUTABLE
    store.store(message("a"))
    dispatcher_of(store, transport, added_headers="all").dispatch_due()
    (copy,) = transport.arrived("error")
    assert copy.headers.keys().isdisjoint({"delaystore.attempt", "delaystore.sent-at", "delaystore.load"})


def test_a_message_that_is_handed_over_has_them(store: CountingStore, clock: SettableClock) -> None:
    transport = NativeTransport()
    store.store_many([message("due"), message("early", due_time=NOON + timedelta(hours=1))])
    dispatcher_of(store, transport, added_headers="due-time,attempt", handover_horizon=7200).dispatch_due()
    (early,) = transport.handed_over
    assert early.headers == {"delaystore.due-time": "2027-01-01T13:00:00+00:00", "delaystore.attempt": 1}
    (due,) = transport.sent
    assert due.headers["delaystore.due-time"] == NOON_TEXT


def test_a_store_that_fails_is_asked_before_anything_is_sent(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise messages that have arrived would not be noted, and be sent again."""
    transport = NativeTransport()
    store.store_many([message("due"), message("early", due_time=NOON + timedelta(hours=1))])
    dispatcher = dispatcher_of(store, transport, added_headers="load", handover_horizon=7200)

    def fail(*_: object) -> None:
        raise StoreUnavailableError("the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr(InMemoryTransaction, "loads_of", fail)
        with pytest.raises(StoreUnavailableError):
            dispatcher.dispatch_due()
    assert (transport.attempts, transport.handed_over) == ([], [])
    assert dispatcher.dispatch_due().delivered == 2
    assert (len(transport.attempts), len(transport.handed_over)) == (1, 1)


def test_the_id_of_a_load_is_looked_up_once(
    store: CountingStore, transport: ScriptedTransport, loads: dict[str, list[Any]]
) -> None:
    dispatcher = dispatcher_of(store, transport, added_headers="load", batch_size=2)
    for number in range(3):
        store.store_many([message(f"a{number}"), message(f"b{number}")])
        dispatcher.dispatch_due()
    found = {sent.message_id: sent.headers.get("delaystore.load") for sent in transport.sent}
    assert found == {"a0": "spring", "a1": "spring", "a2": "spring", "b0": None, "b1": None, "b2": None}
    assert loads["numbers"] == [{7}]


def test_no_more_ids_are_remembered_than_the_bound(
    store: CountingStore, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InMemoryTransaction, "loads_of", lambda _, ids: {each: int(each) for each in ids})
    monkeypatch.setattr(InMemoryTransaction, "load_ids", lambda _, numbers: {each: f"load {each}" for each in numbers})
    adder = HeaderAdder((AddedHeader.LOAD,), transport)
    for first in range(0, 3 * MOST_LOADS, MOST_LOADS // 2):
        batch = [message(str(first + number)) for number in range(MOST_LOADS // 2)]
        with store.transaction() as tx:
            sent = adder.for_batch(tx, batch)(batch)
        assert [each.headers["delaystore.load"] for each in sent] == [f"load {each.message_id}" for each in batch]
        assert len(adder._load_ids) <= MOST_LOADS


def test_the_time_is_that_of_the_send_and_not_of_the_batch(store: CountingStore, transport: ScriptedTransport) -> None:
    """A batch may be sent in parts, with seconds between: probes of a suspended destination go last."""
    adder = HeaderAdder((AddedHeader.SENT_AT,), transport)
    with store.transaction() as tx:
        add = adder.for_batch(tx, [message("a")])
    time.sleep(0.05)
    (sent,) = add([message("a")])
    assert datetime.fromisoformat(sent.headers["delaystore.sent-at"]) >= NOON + timedelta(seconds=0.05)


def test_a_store_of_five_methods_has_no_loads(transport: ScriptedTransport) -> None:
    store = FiveMethodStore()
    one = message("a", due_time=NOON.replace(year=2020))
    store.store(one)
    dispatcher_of(store, transport, added_headers="all").dispatch_due()
    (sent,) = transport.sent
    assert sent.headers.keys() == {"delaystore.due-time", "delaystore.attempt", "delaystore.sent-at"}
    assert sent.headers["delaystore.due-time"] == unmarked(one).isoformat()
