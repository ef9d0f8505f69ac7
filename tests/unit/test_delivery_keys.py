"""Keys, as whoever sends sees them."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, DuplicateKeyError, InvalidMessageError, KeyInUseError
from delaystore.message import DelayedMessage, KeyRule, OnKey
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.stores.abc import REJECT, KeyedDelayedMessageStore, ManagementOutcome
from delaystore.testing import SettableClock
from tests.dispatching import FiveMethodStore, ScriptedTransport, message, settings


@pytest.fixture
def store(clock: SettableClock) -> InMemoryDelayedMessageStore:
    return InMemoryDelayedMessageStore(clock)


@pytest.fixture
def delivery(store: InMemoryDelayedMessageStore) -> DelayedDelivery:
    return DelayedDelivery("sales", store)


def test_the_four_answers(delivery: DelayedDelivery, clock: SettableClock) -> None:
    first = delivery.send("billing", b"1", delay=60, key="order-17")
    with pytest.raises(DuplicateKeyError, match=f"the message '{first}' already waits with the key 'order-17'"):
        delivery.send("billing", b"2", delay=60, key="order-17")
    assert delivery.send("billing", b"3", delay=60, key="order-17", on_key="keep") == first
    replaced = delivery.send("billing", b"4", delay=30, key="order-17", on_key=OnKey.REPLACE)
    assert replaced != first
    clock.advance(timedelta(seconds=20))
    last = delivery.send("billing", b"5", delay=60, key="order-17", on_key="debounce", max_wait=45)
    found = delivery.get(key="order-17")
    assert found is not None
    assert (found.message_id, found.body, found.due_time - clock.now()) == (last, b"5", timedelta(seconds=25))
    assert delivery.count() == 1


def test_a_key_finds_its_message(delivery: DelayedDelivery, clock: SettableClock) -> None:
    message_id = delivery.send("billing", b"1", delay=60, key="k")
    assert delivery.reschedule(key="k", delay=30) is ManagementOutcome.DONE
    assert delivery.get(message_id) == delivery.get(key="k")
    assert delivery.cancel(key="k") is ManagementOutcome.DONE
    assert delivery.cancel(key="k") is ManagementOutcome.NOT_FOUND
    assert delivery.reschedule(key="k", at=clock.now()) is ManagementOutcome.NOT_FOUND
    assert delivery.get(key="k") is None


def test_what_a_dispatcher_has_is_told_apart(delivery: DelayedDelivery, store: InMemoryDelayedMessageStore) -> None:
    store.key_timeout = 0.1
    delivery.send("billing", b"1", delay=0, key="k")
    held = store.fetch_next_due_timeout(store.now())
    assert held is not None
    assert delivery.cancel(key="k") is ManagementOutcome.BEING_DISPATCHED
    assert delivery.reschedule(key="k", delay=30) is ManagementOutcome.BEING_DISPATCHED
    assert delivery.get(key="k") == held
    for on_key in OnKey:
        with pytest.raises(KeyInUseError, match=r"'k' is just being dispatched, .* send again"):
            delivery.send("billing", b"2", delay=0, key="k", on_key=on_key)
    assert store.remove(held)
    delivery.send("billing", b"2", delay=0, key="k")


def test_where_another_took_the_place_that_one_is_cancelled(store: InMemoryDelayedMessageStore) -> None:
    delivery = DelayedDelivery("sales", store)
    delivery.send("billing", b"1", delay=60, key="k")
    found = store.message_id_of

    def replaced_just_now(key: str) -> str | None:
        message_id = found(key)
        store.message_id_of = found  # type: ignore[method-assign]
        delivery.send("billing", b"2", delay=60, key="k", on_key="replace")
        return message_id

    store.message_id_of = replaced_just_now  # type: ignore[method-assign]
    assert delivery.cancel(key="k") is ManagementOutcome.DONE
    assert delivery.count() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"on_key": "keep"}, "on_key and max_wait need key="),
        ({"max_wait": 5}, "on_key and max_wait need key="),
        ({"key": "k", "on_key": "wait"}, "on_key must be one of reject, keep, replace, debounce, not 'wait'"),
        ({"key": "k", "max_wait": 5}, "max_wait needs on_key='debounce', not 'reject'"),
        ({"key": "k", "on_key": "debounce", "max_wait": 0}, "it must be more than 0"),
        ({"key": "k", "on_key": "debounce", "max_wait": "5"}, "max_wait must be a timedelta or a number of seconds"),
        ({"key": ""}, "key is empty"),
        ({"key": 17}, "key must be a str, not int"),
        ({"key": "a\nb"}, "contains the control character"),
        ({"key": "ä" * 128}, "has 256 bytes; at most 255 are allowed"),
    ],
)
def test_a_mistake_is_said(delivery: DelayedDelivery, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        delivery.send("billing", b"", delay=0, **arguments)
    assert delivery.count() == 0


def test_a_message_is_named_by_its_id_or_its_key(delivery: DelayedDelivery) -> None:
    for call in (delivery.cancel, delivery.get, lambda: delivery.cancel("a", key="k")):
        with pytest.raises(InvalidMessageError, match="give exactly one of a message_id and key="):
            call()


def test_a_store_without_keys_says_so() -> None:
    delivery = DelayedDelivery("sales", FiveMethodStore())
    keyed = message("a", key="k")
    for send in (
        lambda: delivery.send("billing", b"", delay=0, key="k"),
        lambda: delivery.send_many([message("b"), keyed]),
    ):
        with pytest.raises(ConfigurationError, match="FiveMethodStore does not support keys"):
            send()
    delivery.send("billing", b"", delay=0)


def test_many_are_sent_by_one_rule(delivery: DelayedDelivery) -> None:
    messages = [message("a", key="k"), message("b", key="k"), message("c")]
    with pytest.raises(DuplicateKeyError):
        delivery.send_many(messages)
    assert delivery.count() == 0
    assert delivery.send_many(messages, on_key="keep") == 2
    assert delivery.send_many([message("d", key="k")], on_key="debounce", max_wait=9) == 1
    found = delivery.get(key="k")
    assert found is not None
    assert found.body == b"d"


def test_a_message_with_a_key_is_never_delayed_by_the_broker() -> None:
    class Delaying(ScriptedTransport):
        longest_native_delay = timedelta(hours=1)

    store = InMemoryDelayedMessageStore()
    delivery = DelayedDelivery("sales", store, Delaying(), settings(), native=True)
    delivery.send("billing", b"", delay=60, key="k")
    delivery.send_many([message("a", due_time=store.now() + timedelta(seconds=60), key="l")])
    assert delivery.count() == 2
    delivery.close()


class KeyedOnlyStore(FiveMethodStore, KeyedDelayedMessageStore):
    """It knows keys, and keeps no audit trail."""

    def store_keyed(self, message: DelayedMessage, rule: KeyRule) -> str:
        self.store(message)
        return message.message_id

    def message_id_of(self, key: str) -> str | None:
        return None

    def store_many(self, messages: Iterable[DelayedMessage], rule: KeyRule = REJECT) -> int:
        return sum(1 for each in messages if self.store(each) is None)


@pytest.mark.parametrize("on_key", OnKey)
def test_what_cannot_be_noted_is_not_replaced(on_key: OnKey) -> None:
    with DelayedDelivery("sales", KeyedOnlyStore(), settings=settings(audit="all")) as delivery:
        for sending in (
            lambda: delivery.send("billing", b"1", delay=60, key="k", on_key=on_key),
            lambda: delivery.send_many([message("a", key="k")], on_key=on_key),
        ):
            if on_key in (OnKey.REPLACE, OnKey.DEBOUNCE):
                with pytest.raises(ConfigurationError, match="KeyedOnlyStore keeps no audit trail"):
                    sending()
            else:
                sending()
        assert delivery.send_many([message("other")], on_key=on_key) == 1
