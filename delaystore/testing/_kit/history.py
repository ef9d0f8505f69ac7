"""The history: each message that leaves the store has an entry, made in the transaction that removes it."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

import pytest

from delaystore.errors import ConfigurationError, DelaystoreError, MessageDeliveredError
from delaystore.filters import MessageFilter
from delaystore.message import FailedAttempt, KeyRule, OnKey
from delaystore.stores.abc import DelayedMessageStore, ManagementOutcome
from delaystore.stores.history import HistoryEntry, HistoryFilter, StoreWithHistory
from delaystore.stores.operable import AuditedKeyedStore, OperableDelayedMessageStore, OperableTransaction
from delaystore.stores.records import ChangeAction, Ending, FailedDelivery, Operation, OperationKind
from delaystore.testing._capabilities import needs
from delaystore.testing._kit._base import HOUR, ME, NOON, TICK, StoreTests, a_message, as_operable
from delaystore.testing._kit.audit import BreakDownError, a_change

DAY = timedelta(days=1)
DONE = ManagementOutcome.DONE
REPLACE = KeyRule(OnKey.REPLACE)


def historic(store: DelayedMessageStore) -> StoreWithHistory:
    """`store` as a StoreWithHistory."""
    assert isinstance(store, StoreWithHistory), "the flag history is for a StoreWithHistory"
    return store


def entries(store: DelayedMessageStore, wanted: HistoryFilter | None = None) -> Sequence[HistoryEntry]:
    """All entries that match, page by page."""
    page = historic(store).history(wanted or HistoryFilter(), limit=2)
    found = [*page.entries]
    while page.next_key is not None:
        page = historic(store).history(wanted or HistoryFilter(), after=page.next_key, limit=2)
        found += page.entries
    return found


def endings(store: DelayedMessageStore) -> dict[str, Ending]:
    """The ending by message_id; each message has one entry."""
    found = entries(store)
    assert max(Counter(each.message_id for each in found).values(), default=1) == 1
    return {each.message_id: each.ending for each in found}


def end(store: DelayedMessageStore, ending: Ending, at: timedelta = HOUR, *ids: str) -> int:
    """Remove claimed messages (those of `ids`, or all that are due), which have ended that long after NOON."""
    with store.transaction() as transaction:
        assert isinstance(transaction, OperableTransaction)
        due = [each for each in transaction.fetch_due(NOON + DAY, 100) if not ids or each.message_id in ids]
        return transaction.remove_ended(due, ending, NOON + at)


@needs("operations", "history")
class HistoryTests(StoreTests):
    """Entries of messages that leave the store."""

    @pytest.fixture
    def kept(self, store: DelayedMessageStore) -> OperableDelayedMessageStore:
        """The store under test, which keeps its history for a day."""
        historic(store).keep_history(DAY)
        return as_operable(store)

    def test_at_first_no_history_is_kept(self, operable: OperableDelayedMessageStore) -> None:
        operable.store_many([a_message("a"), a_message("b")])
        assert operable.cancel("a") is DONE
        assert end(operable, Ending.DELIVERED) == 1
        status = historic(operable).history_status()
        assert (status.kept, status.since) == (None, None)
        assert entries(operable) == []

    def test_a_delivered_message_has_an_entry(self, kept: OperableDelayedMessageStore) -> None:
        kept.store(message := a_message("a", NOON, destination="billing", body=b"pay"))
        assert end(kept, Ending.DELIVERED) == 1
        (entry,) = entries(kept)
        assert entry == HistoryEntry(
            message_id="a",
            destination="billing",
            due_time=NOON,
            ended=NOON + HOUR,
            ending=Ending.DELIVERED,
            attempts=1,
            body_hash=sha256(message.body).hexdigest(),
        )
        assert entry.late == HOUR

    def test_what_remove_deletes_was_delivered(self, kept: OperableDelayedMessageStore) -> None:
        kept.store_many([a_message("a"), a_message("b")])
        with kept.transaction() as transaction:
            first, second = transaction.fetch_due(NOON + DAY, 2)
            assert transaction.remove(first)
            assert transaction.remove_many([first, second]) == 1
        assert endings(kept) == {"a": Ending.HANDED_OVER, "b": Ending.HANDED_OVER}  # NOON is in the future

    @pytest.mark.parametrize("ending", [Ending.FAILED, Ending.EXPIRED, Ending.MIGRATED])
    def test_each_ending_is_told_apart(self, kept: OperableDelayedMessageStore, ending: Ending) -> None:
        kept.store_many([a_message("a"), a_message("b")])
        assert end(kept, ending, HOUR, "a") == 1
        (entry,) = entries(kept)
        assert (entry.message_id, entry.ending, entry.attempts) == ("a", ending, int(ending is Ending.FAILED))
        assert entry.late is None

    def test_a_message_delivered_ahead_of_its_due_time_was_handed_over(self, kept: OperableDelayedMessageStore) -> None:
        kept.store_many([a_message("early", NOON + HOUR + TICK), a_message("due", NOON + HOUR)])
        assert end(kept, Ending.DELIVERED, HOUR) == 2
        assert endings(kept) == {"early": Ending.HANDED_OVER, "due": Ending.DELIVERED}

    def test_failed_attempts_are_kept(self, kept: OperableDelayedMessageStore) -> None:
        kept.store(a_message("a"))
        attempt = FailedAttempt(NOON, "Refused", "nacked")
        with kept.transaction() as transaction:
            assert isinstance(transaction, OperableTransaction)
            (message,) = transaction.fetch_due(NOON, 1)
            transaction.count_failures([FailedDelivery(message=message, next_attempt=NOON + HOUR, attempt=attempt)])
        assert end(kept, Ending.DELIVERED) == 1
        (entry,) = entries(kept)
        assert (entry.attempts, list(entry.failures), entry.due_time) == (2, [attempt], NOON)

    def test_a_message_that_is_cancelled_has_an_entry_with_who_did_it(self, kept: OperableDelayedMessageStore) -> None:
        kept.store_many([a_message("a"), a_message("b"), a_message("c")])
        assert kept.cancel("a", change=a_change()) is DONE
        assert kept.cancel("b") is DONE
        assert kept.cancel("no such") is ManagementOutcome.NOT_FOUND
        assert [(each.message_id, each.ending, each.by, each.attempts) for each in entries(kept)] == [
            ("b", Ending.CANCELLED, None, 0),
            ("a", Ending.CANCELLED, ME, 0),
        ]

    def test_a_cancel_for_another_message_of_the_id_has_replaced_it(self, kept: OperableDelayedMessageStore) -> None:
        kept.store(a_message("a"))
        assert kept.cancel("a", change=a_change(ChangeAction.REPLACE)) is DONE
        assert endings(kept) == {"a": Ending.REPLACED}

    def test_an_operation_makes_an_entry_for_each_message_that_it_cancels(
        self, kept: OperableDelayedMessageStore
    ) -> None:
        kept.store_many([a_message(name, destination="billing" if name < "d" else "sales") for name in "abcdef"])
        wanted = MessageFilter(destination="billing")
        kept.begin_operation(Operation(operation_id="one", kind=OperationKind.CANCEL, wanted=wanted, by=ME, began=NOON))
        while (operation := kept.advance_operation("one", 2)) is not None and operation.ended is None:
            pass
        assert endings(kept) == dict.fromkeys("abc", Ending.CANCELLED)
        assert {each.by for each in entries(kept)} == {ME}

    def test_a_rescheduled_message_has_no_entry(self, kept: OperableDelayedMessageStore) -> None:
        kept.store(a_message("a"))
        assert kept.reschedule("a", NOON + HOUR) is DONE
        assert entries(kept) == []

    def test_a_transaction_that_is_undone_leaves_no_entry(self, kept: OperableDelayedMessageStore) -> None:
        kept.store_many([a_message("a"), a_message("b")])
        with pytest.raises(BreakDownError), kept.transaction() as transaction:
            assert isinstance(transaction, OperableTransaction)
            transaction.remove_ended(transaction.fetch_due(NOON, 1), Ending.DELIVERED, NOON)
            raise BreakDownError
        assert entries(kept) == []
        assert kept.count() == 2

    def test_what_was_not_claimed_any_more_gets_no_entry(self, kept: OperableDelayedMessageStore) -> None:
        kept.store(a_message("a"))
        with kept.transaction() as transaction:
            assert isinstance(transaction, OperableTransaction)
            claimed = transaction.fetch_due(NOON, 1)
            assert transaction.remove_ended(claimed, Ending.DELIVERED, NOON) == 1
            assert transaction.remove_ended(claimed, Ending.DELIVERED, NOON) == 0
        assert len(entries(kept)) == 1

    def test_a_message_id_that_is_used_again_has_an_entry_each_time(self, kept: OperableDelayedMessageStore) -> None:
        for number in range(3):
            kept.store(a_message("a", body=bytes([number])))
            assert end(kept, Ending.DELIVERED, number * HOUR) == 1
        found = entries(kept, HistoryFilter(message_id="a"))
        assert [each.body_hash for each in found] == [sha256(bytes([number])).hexdigest() for number in (2, 1, 0)]

    def test_the_history_is_searched(self, kept: OperableDelayedMessageStore) -> None:
        kept.store_many([a_message(f"b{number}", destination="billing") for number in range(3)])
        kept.store_many([a_message(f"s{number}", destination="sales") for number in range(3)])
        for number in range(3):
            assert end(kept, Ending.DELIVERED, number * HOUR, f"b{number}") == 1
        assert end(kept, Ending.FAILED, 3 * HOUR) == 3

        def ids(**wanted: object) -> list[str]:
            return [each.message_id for each in entries(kept, HistoryFilter(**wanted))]  # type: ignore[arg-type]

        assert ids() == ["s2", "s1", "s0", "b2", "b1", "b0"]
        assert ids(destination="billing") == ["b2", "b1", "b0"]
        assert ids(ending=Ending.FAILED) == ["s2", "s1", "s0"]
        assert ids(since=NOON + HOUR, until=NOON + 3 * HOUR) == ["b2", "b1"]
        assert ids(message_id="b1") == ["b1"]
        assert ids(message_id="b1", destination="sales") == []

    def test_messages_that_were_delivered_can_be_refused(self, kept: OperableDelayedMessageStore) -> None:
        kept.store_many([a_message("a"), a_message("b")])
        assert end(kept, Ending.DELIVERED, HOUR, "a") == 1
        assert end(kept, Ending.FAILED) == 1
        with pytest.raises(MessageDeliveredError) as caught:
            historic(kept).store_new([a_message("a"), a_message("b"), a_message("c")])
        assert list(caught.value.message_ids) == ["a"]
        assert kept.count() == 0
        assert historic(kept).store_new([a_message("b"), a_message("c")]) == {"b": "b", "c": "c"}
        kept.store(a_message("a"))
        assert kept.count() == 3

    def test_a_page_holds_at_least_one_entry(self, kept: OperableDelayedMessageStore) -> None:
        for limit in (0, -1, True):
            with pytest.raises(ConfigurationError):
                historic(kept).history(HistoryFilter(), limit=limit)

    def test_old_entries_of_the_history_are_forgotten_in_steps(self, kept: OperableDelayedMessageStore) -> None:
        kept.store_many([a_message(name) for name in "abcde"])
        now = kept.now()
        for number, name in enumerate("abcde"):
            assert end(kept, Ending.DELIVERED, now - DAY - NOON + (number - 2.5) * HOUR, name) == 1
        assert historic(kept).forget_history(2) == 2
        assert sorted(endings(kept)) == ["c", "d", "e"]
        assert historic(kept).forget_history(2) == 1
        assert historic(kept).forget_history(2) == 0
        assert sorted(endings(kept)) == ["d", "e"]

    def test_a_history_that_has_ended_gets_no_more_entries_and_is_forgotten_as_before(
        self, kept: OperableDelayedMessageStore
    ) -> None:
        kept.store_many([a_message("old"), a_message("recent"), a_message("later")])
        now = kept.now()
        assert end(kept, Ending.DELIVERED, now - 2 * DAY - NOON, "old") == 1
        assert end(kept, Ending.DELIVERED, now - NOON, "recent") == 1
        historic(kept).keep_history(None)
        assert end(kept, Ending.DELIVERED) == 1
        assert sorted(endings(kept)) == ["old", "recent"]
        assert historic(kept).history_status().kept is None
        assert historic(kept).forget_history() == 1
        assert sorted(endings(kept)) == ["recent"]

    def test_the_status_says_since_when(self, kept: OperableDelayedMessageStore) -> None:
        status = historic(kept).history_status()
        assert status.since is not None
        assert abs(status.since - kept.now()) < HOUR
        assert status.kept == DAY
        historic(kept).keep_history(2 * DAY)
        assert historic(kept).history_status().since == status.since
        assert historic(kept).history_status().kept == 2 * DAY

    def test_another_store_reads_the_entries(
        self, kept: OperableDelayedMessageStore, colleague: OperableDelayedMessageStore
    ) -> None:
        kept.store_many([a_message("a"), a_message("b")])
        assert end(kept, Ending.DELIVERED, HOUR, "a") == 1
        assert [each.message_id for each in entries(colleague)] == ["a"]
        assert colleague.cancel("b") is DONE  # the first that it removes: it looks whether a history is kept
        assert endings(kept) == {"a": Ending.DELIVERED, "b": Ending.CANCELLED}

    def test_changes_of_one_message_are_found(self, kept: OperableDelayedMessageStore) -> None:
        kept.store_many([a_message("a"), a_message("b")])
        for name in "ab":
            kept.reschedule(name, NOON + HOUR, change=a_change(ChangeAction.RESCHEDULE))
            kept.cancel(name, change=a_change())
        assert [each.action for each in kept.changes_of("a")] == ["cancel", "reschedule"]
        assert [each.action for each in kept.changes_of("a", 1)] == ["cancel"]
        assert list(kept.changes_of("no such")) == []


@needs("operations", "history", "keys")
class HistoryOfKeysTests(StoreTests):
    """Entries of messages that have a key."""

    @pytest.fixture
    def keyed(self, store: DelayedMessageStore) -> AuditedKeyedStore:
        """The store under test, which keeps its history for a day."""
        historic(store).keep_history(DAY)
        assert isinstance(store, AuditedKeyedStore)
        return store

    @pytest.mark.parametrize("on_key", [OnKey.REPLACE, OnKey.DEBOUNCE])
    def test_a_replaced_message_has_an_entry(self, keyed: AuditedKeyedStore, on_key: OnKey) -> None:
        rule = KeyRule(on_key)
        keyed.store_keyed(a_message("a", key="k"), rule)
        keyed.store_keyed(a_message("b", key="k"), rule, change=a_change(ChangeAction.REPLACE))
        keyed.store_keyed(a_message("c", key="k"), rule)
        assert [(each.message_id, each.ending, each.key, each.by) for each in entries(keyed)] == [
            ("b", Ending.REPLACED, "k", None),
            ("a", Ending.REPLACED, "k", ME),
        ]
        assert len(entries(keyed, HistoryFilter(key="k"))) == 2
        assert entries(keyed, HistoryFilter(key="other")) == []

    @pytest.mark.parametrize("on_key", [OnKey.KEEP, OnKey.REJECT])
    def test_a_message_that_is_kept_has_none(self, keyed: AuditedKeyedStore, on_key: OnKey) -> None:
        keyed.store_keyed(a_message("a", key="k"), REPLACE)
        try:
            keyed.store_keyed(a_message("b", key="k"), KeyRule(on_key))
        except DelaystoreError:
            assert on_key is OnKey.REJECT
        assert entries(keyed) == []

    def test_a_message_replaced_by_one_of_its_own_id_has_an_entry(self, keyed: AuditedKeyedStore) -> None:
        for body in (b"1", b"2"):
            keyed.store_keyed(a_message("a", key="k", body=body), REPLACE)
        (entry,) = entries(keyed)
        assert (entry.ending, entry.body_hash) == (Ending.REPLACED, sha256(b"1").hexdigest())

    def test_a_batch_that_is_refused_leaves_no_entry(self, keyed: AuditedKeyedStore) -> None:
        keyed.store_many([a_message("a", key="k"), a_message("taken")], REPLACE)
        with pytest.raises(DelaystoreError):
            keyed.store_many([a_message("b", key="k"), a_message("taken", key="z")], REPLACE)
        assert entries(keyed) == []

    def test_a_replacement_that_is_refused_within_a_transaction_leaves_no_entry(self, keyed: AuditedKeyedStore) -> None:
        keyed.store_many([a_message("a", key="k"), a_message("taken")], REPLACE)
        with keyed.transaction() as transaction:
            if not isinstance(transaction, AuditedKeyedStore):
                pytest.skip("a transaction of this store replaces no message")
            with pytest.raises(DelaystoreError):
                transaction.store_keyed(a_message("taken", key="k"), REPLACE)
            transaction.store(a_message("other"))
        assert entries(keyed) == []

    def test_the_key_of_a_delivered_message_is_kept(self, keyed: AuditedKeyedStore) -> None:
        keyed.store_keyed(a_message("a", key="k"), KeyRule())
        assert end(keyed, Ending.DELIVERED) == 1
        (entry,) = entries(keyed, HistoryFilter(key="k"))
        assert entry.message_id == "a"
