"""The audit trail: a change and its entry are made in one transaction, and all changes have the same form."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import cast

import pytest

from delaystore.errors import DelaystoreError, DuplicateMessageError
from delaystore.filters import EVERYTHING, MessageFilter
from delaystore.message import KeyRule, OnKey, are_same_time
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.operable import AuditedKeyedStore, AuditedStore, OperableDelayedMessageStore
from delaystore.stores.records import AuditEntry, Change, ChangeAction, Operation, OperationKind, OperationState, Way
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import FAR, HOUR, ME, NOON, TICK, StoreTests, a_message, claimed
from delaystore.text import time_text

DONE, BEING_DISPATCHED, NOT_FOUND = ManagementOutcome
MESSAGE = a_message("a", NOON, destination="billing")
LATER = NOON + HOUR
SOON = timedelta(seconds=90)


class BreakDownError(Exception):
    """An error that ends a transaction in these tests."""


def a_change(action: ChangeAction = ChangeAction.CANCEL, by: str = ME) -> Change:
    """A change by the command line."""
    return Change(by=by, way=Way.CLI, action=action)


def only_entry(store: OperableDelayedMessageStore) -> AuditEntry:
    """The one entry there is, which was written just now."""
    (entry,) = store.changes()
    assert abs(entry.at - store.now()) < SOON
    return entry


def fields_of(entry: AuditEntry) -> dict[str, object]:
    """The entry's facts, without the time and the words."""
    fields = {name: getattr(entry, name) for name in AuditEntry.__slots__ if name not in ("at", "about")}
    return {name: value for name, value in fields.items() if value is not None}


def an_operation(
    kind: OperationKind = OperationKind.CANCEL, wanted: MessageFilter = EVERYTHING, due_time: datetime | None = None
) -> Operation:
    """An operation that has not begun."""
    return Operation(operation_id="one", kind=kind, wanted=wanted, by=ME, began=NOON, due_time=due_time)


@needs("operations")
class AuditTests(StoreTests):
    """Entries of changes of messages."""

    def test_a_cancel_is_noted_with_what_the_message_was(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(MESSAGE)
        assert operable.cancel("a", change=a_change()) is DONE
        entry = only_entry(operable)
        assert fields_of(entry) == {
            "by": ME,
            "way": "cli",
            "action": "cancel",
            "count": 1,
            "message_id": "a",
            "destination": "billing",
            "old_due_time": NOON,
        }
        assert entry.about.startswith("message a from ")

    def test_a_cancel_for_another_message_of_the_id_is_noted_with_the_new_due_time(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        operable.store(MESSAGE)
        change = replace(a_change(ChangeAction.REPLACE), new_due_time=LATER)
        assert operable.cancel("a", change=change) is DONE
        entry = only_entry(operable)
        assert (entry.action, entry.old_due_time, entry.new_due_time) == ("replace", NOON, LATER)

    def test_a_new_due_time_is_noted_with_the_old_one(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(MESSAGE)
        assert operable.reschedule("a", LATER, change=a_change(ChangeAction.SEND_NOW)) is DONE
        entry = only_entry(operable)
        assert (entry.action, entry.old_due_time, entry.new_due_time) == ("send-now", NOON, LATER)

    def test_the_old_due_time_is_noted_without_the_marks_of_senders_who_were_told_of_the_message(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        operable.store_many([MESSAGE, a_message("b")])
        operable.store(failing := a_message("c", failure_count=2, next_attempt=LATER))
        for message_id in "abc":
            with pytest.raises(DuplicateMessageError):
                operable.store(a_message(message_id))
        marked_twice = operable.get_unclaimed(["a", "b", "c"])
        assert marked_twice["a"].due_time != NOON
        assert operable.cancel("a", change=a_change()) is DONE
        assert operable.reschedule("b", LATER, change=a_change(ChangeAction.RESCHEDULE)) is DONE
        assert operable.cancel("c", change=a_change()) is DONE
        noted = {each.message_id: each for each in operable.changes()}
        assert (noted["a"].old_due_time, noted["b"].old_due_time) == (NOON, NOON)
        assert noted["a"].about == f"message a from {time_text(NOON)}"
        assert noted["c"].old_due_time == marked_twice["c"].due_time
        assert are_same_time(marked_twice["c"].due_time, failing.due_time)

    def test_without_a_change_nothing_is_noted(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(MESSAGE)
        assert operable.reschedule("a", LATER) is DONE
        assert operable.cancel("a") is DONE
        assert list(operable.changes()) == []

    def test_what_changes_nothing_is_not_noted(self, operable: OperableDelayedMessageStore) -> None:
        operable.store(MESSAGE)
        with operable.transaction() as dispatcher:
            claimed(dispatcher, NOON)
            assert operable.cancel("a", change=a_change()) is BEING_DISPATCHED
            assert operable.reschedule("a", LATER, change=a_change()) is BEING_DISPATCHED
        assert operable.cancel("b", change=a_change()) is NOT_FOUND
        assert operable.reschedule("b", LATER, change=a_change()) is NOT_FOUND
        assert list(operable.changes()) == []

    def test_a_rollback_undoes_the_change_and_its_entry(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many([MESSAGE, a_message("b")])
        with operable.transaction() as probe:
            if not isinstance(probe, AuditedStore):
                pytest.skip("a transaction of this store changes no waiting messages")
        with pytest.raises(BreakDownError), operable.transaction() as transaction:
            changing = cast(AuditedStore, transaction)
            assert changing.cancel("a", change=a_change()) is DONE
            assert changing.reschedule("b", LATER, change=a_change()) is DONE
            raise BreakDownError
        assert list(operable.changes()) == []
        assert set(operable.get_many(["a", "b"])) == {"a", "b"}
        assert operable.get_many(["b"])["b"].due_time == NOON

    def test_an_operation_is_noted_as_it_begins_and_with_its_last_step(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        operable.store_many([a_message(f"m{number}") for number in range(3)])
        change = a_change(ChangeAction.RESCHEDULE)
        operable.begin_operation(an_operation(OperationKind.RESCHEDULE, due_time=LATER), change=change)
        (begun,) = operable.changes()
        assert (begun.count, begun.operation_id, begun.wanted, begun.new_due_time) == (0, "one", EVERYTHING, LATER)
        first = operable.advance_operation("one", 2, change=change)
        assert first is not None
        assert first.state is OperationState.RUNNING
        (begun,) = operable.changes()
        assert (begun.count, begun.operation_id) == (first.changed, "one") == (2, "one")
        while first is not None and first.state is OperationState.RUNNING:
            first = operable.advance_operation("one", 2, change=change)
        assert sorted((each.count, each.operation_id) for each in operable.changes()) == [(0, "one"), (3, "one")]
        operable.advance_operation("one", change=change)
        assert len(operable.changes()) == 2

    def test_what_an_interrupted_operation_has_changed_is_noted(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        operable.store_many([a_message(f"m{number}") for number in range(9)])
        operable.begin_operation(an_operation(), change=a_change())
        counts = []
        for stepping in (operable, colleague, operable):
            stepping.advance_operation("one", 2, change=a_change())
            counts += [entry.count for entry in operable.changes()]
        assert counts == [2, 4, 6]
        colleague.end_operation("one", change=a_change(ChangeAction.ABANDON))
        assert sorted((entry.action, entry.count) for entry in operable.changes()) == [("abandon", 6), ("cancel", 0)]

    def test_an_operation_whose_end_is_not_noted_has_all_it_changed_in_its_first_entry(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        operable.store_many([a_message(f"m{number}") for number in range(3)])
        operable.begin_operation(an_operation(), change=a_change())
        operation = operable.operation("one")
        while operation is not None and operation.state is OperationState.RUNNING:
            operation = operable.advance_operation("one", 2)
        assert [entry.count for entry in operable.changes()] == [3]

    def test_an_abandoned_operation_is_noted_once(self, operable: OperableDelayedMessageStore) -> None:
        operable.begin_operation(an_operation())
        for _ in range(2):
            operable.end_operation("one", change=a_change(ChangeAction.ABANDON))
        assert operable.end_operation("two", change=a_change(ChangeAction.ABANDON)) is None
        assert only_entry(operable).action == "abandon"

    def test_pauses_and_limits_are_noted_with_them(self, operable: OperableDelayedMessageStore) -> None:
        pause, resume, limit = (
            a_change(action) for action in (ChangeAction.PAUSE, ChangeAction.RESUME, ChangeAction.LIMIT)
        )
        assert operable.resume("billing", by=ME, change=resume) is False
        operable.limit_rate("billing", 50, by=ME, change=limit)
        operable.limit_rate("billing", None, by=ME, change=limit)
        operable.pause("billing", by=ME, until=FAR, change=pause)
        operable.pause("billing", by=ME)
        assert operable.resume("billing", by=ME, change=resume) is True
        found = sorted(operable.changes(), key=lambda each: (each.action, each.about))
        assert {(each.way, each.by, each.count, each.destination) for each in found} == {("cli", ME, 0, "billing")}
        assert [(each.action, each.about.partition(" until ")[0]) for each in found] == [
            ("limit", "billing to 50/s"),
            ("limit", "billing: no limit any more"),
            ("pause", "billing"),
            ("resume", "billing"),
        ]

    @pytest.mark.parametrize(
        "wanted", [EVERYTHING, MessageFilter(destination="ü 🕰", since=NOON, headers={"kind": "x"})], ids=["all", "some"]
    )
    def test_entries_keep_all_their_fields(self, operable: OperableDelayedMessageStore, wanted: MessageFilter) -> None:
        entry = AuditEntry(
            at=NOON,
            by=ME,
            action="reschedule",
            about="message 'ü'",
            count=1,
            way="web",
            message_id="ü 🕰",
            key="k 🕰",
            destination="/queues/ü",
            wanted=wanted,
            operation_id="one",
            old_due_time=NOON,
            new_due_time=LATER + TICK,
        )
        operable.note_changes([entry])
        assert list(operable.changes()) == [entry]

    def test_old_entries_are_forgotten_in_steps(
        self, operable: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        at = [NOON + number * TICK for number in (0, 0, 0, 1, 2, 3)]
        operable.note_changes([AuditEntry(at=each, by=ME, action="pause", about="x", count=0) for each in at])
        assert operable.forget_before(NOON, 2) == 0
        assert operable.forget_before(NOON + 2 * TICK, 2) == 2
        assert [each.at for each in operable.changes()] == at[:1:-1]
        assert colleague.forget_before(NOON + 2 * TICK, 3) == 2
        assert [each.at for each in operable.changes()] == at[:3:-1]
        assert operable.forget_before(NOON + 2 * TICK) == 0

    def test_operations_that_ended_long_ago_are_forgotten(self, operable: OperableDelayedMessageStore) -> None:
        for name in ("ended", "running"):
            operable.begin_operation(
                Operation(operation_id=name, kind=OperationKind.CANCEL, wanted=EVERYTHING, by=ME, began=NOON)
            )
        operable.end_operation("ended")
        now = operable.now()
        assert operable.forget_before(now - HOUR) == 0
        assert operable.forget_before(now + HOUR, 1) == 1
        assert [each.operation_id for each in operable.operations()] == ["running"]
        assert operable.forget_before(now + HOUR) == 0


@needs("operations", "keys")
class AuditOfKeysTests(StoreTests):
    """Entries of messages that take the place of others, by their key."""

    @pytest.mark.parametrize("on_key", [OnKey.REPLACE, OnKey.DEBOUNCE])
    def test_a_replacement_is_noted_without_the_marks_of_the_message_replaced(
        self, operable: OperableDelayedMessageStore, on_key: OnKey
    ) -> None:
        store, change = _keyed(operable), a_change(ChangeAction.REPLACE)
        store.store_keyed(a_message("a", NOON, key="k"), KeyRule(on_key))
        assert store.store_keyed(a_message("b", NOON, key="k"), KeyRule(OnKey.KEEP)) == "a"
        store.store_keyed(a_message("c", LATER, key="k"), KeyRule(on_key), change=change)
        assert only_entry(operable).old_due_time == NOON

    @pytest.mark.parametrize("on_key", [OnKey.REPLACE, OnKey.DEBOUNCE])
    def test_a_replacement_is_noted(self, operable: OperableDelayedMessageStore, on_key: OnKey) -> None:
        store, change = _keyed(operable), a_change(ChangeAction.REPLACE)
        store.store_keyed(a_message("a", NOON, key="k"), KeyRule(on_key))
        store.store_keyed(a_message("b", LATER, key="k"), KeyRule(on_key), change=change)
        entry = only_entry(operable)
        assert fields_of(entry) == {
            "by": ME,
            "way": "cli",
            "action": "replace",
            "count": 1,
            "message_id": "a",
            "key": "k",
            "destination": "billing",
            "old_due_time": NOON,
            "new_due_time": LATER,
        }
        assert entry.about.startswith("message a by b from ")

    @pytest.mark.parametrize("on_key", [OnKey.REPLACE, OnKey.DEBOUNCE, OnKey.KEEP, OnKey.REJECT])
    def test_the_first_of_a_key_replaces_nothing(self, operable: OperableDelayedMessageStore, on_key: OnKey) -> None:
        change, rule = a_change(ChangeAction.REPLACE), KeyRule(on_key)
        assert _keyed(operable).store_keyed(a_message("a", NOON, key="k"), rule, change=change) == "a"
        assert _keyed(operable).store_many([a_message("b"), a_message("c", key="other")], rule, change=change) == 2
        assert list(operable.changes()) == []

    def test_a_message_of_its_own_id_and_key_is_replaced(self, operable: OperableDelayedMessageStore) -> None:
        change, rule = a_change(ChangeAction.REPLACE), KeyRule(OnKey.REPLACE)
        for due_time in (NOON, LATER):
            _keyed(operable).store_keyed(a_message("a", due_time, key="k"), rule, change=change)
        assert only_entry(operable).new_due_time == LATER

    def test_of_many_each_replacement_is_noted(self, operable: OperableDelayedMessageStore) -> None:
        change, rule = a_change(ChangeAction.REPLACE), KeyRule(OnKey.REPLACE)
        _keyed(operable).store_many([a_message(name, NOON, key=name) for name in "abc"], rule, change=change)
        new = [a_message(f"new {name}", LATER, key=name) for name in "bcd"]
        assert _keyed(operable).store_many([*new, a_message("x")], rule, change=change) == 4
        assert sorted(str(each.message_id) for each in operable.changes()) == ["b", "c"]

    def test_a_refused_batch_notes_nothing(self, operable: OperableDelayedMessageStore) -> None:
        change, rule = a_change(ChangeAction.REPLACE), KeyRule(OnKey.REPLACE)
        _keyed(operable).store_many([a_message("a", key="k"), a_message("taken")], rule)
        with pytest.raises(DelaystoreError):
            _keyed(operable).store_many([a_message("b", key="k"), a_message("taken", key="z")], rule, change=change)
        assert operable.get("a") is not None
        assert list(operable.changes()) == []

    def test_a_batch_that_is_refused_within_a_transaction_notes_nothing(
        self, operable: OperableDelayedMessageStore
    ) -> None:
        change, rule = a_change(ChangeAction.REPLACE), KeyRule(OnKey.REPLACE)
        _keyed(operable).store_many([a_message("a", key="k"), a_message("taken")], rule)
        with operable.transaction() as transaction:
            if not isinstance(transaction, AuditedKeyedStore):
                pytest.skip("a transaction of this store notes no changes")
            with pytest.raises(DelaystoreError):
                transaction.store_many([a_message("b", key="k"), a_message("taken", key="z")], rule, change=change)
        assert operable.get("a") is not None
        assert list(operable.changes()) == []

    def test_the_key_of_a_cancelled_message_is_noted(self, operable: OperableDelayedMessageStore) -> None:
        _keyed(operable).store_keyed(a_message("a", NOON, key="k"), KeyRule())
        operable.cancel("a", change=a_change())
        assert (only_entry(operable).message_id, only_entry(operable).key) == ("a", "k")


def _keyed(store: OperableDelayedMessageStore) -> AuditedKeyedStore:
    assert isinstance(store, AuditedKeyedStore)
    return store
