"""A process is killed."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from threading import Event

from delaystore.stores.abc import DelayedMessageStore
from delaystore.testing._capabilities import needs
from delaystore.testing._kit.base import StoreFactory, StoreTests, opened
from delaystore.testing._kit.messages import NOON, SECOND, a_message, all_taken, assert_only, claimed, ids, taken
from delaystore.testing._kit.waiting import DEADLINE, eventually


def claim_and_hang(open_elsewhere: StoreFactory, report: Connection, *, writes: bool = False) -> None:
    """In the process to be killed: claim a message in an open block, and wait.

    `writes`: before it waits, remove that message and store another.
    """
    with opened(open_elsewhere).transaction() as transaction:
        message = claimed(transaction)
        if writes:
            assert transaction.remove(message)
            transaction.store(a_message("never committed"))
        report.send(message.message_id)
        Event().wait()


def store_and_hang(open_elsewhere: StoreFactory, report: Connection) -> None:
    """In the process to be killed: store a message, and wait."""
    opened(open_elsewhere).store(a_message("a"))
    report.send("a")
    Event().wait()


@contextmanager
def killed_at_the_end(target: object, open_elsewhere: StoreFactory) -> Iterator[str]:
    """A process that runs `target`; yields what it reports, and kills it."""
    context = multiprocessing.get_context("forkserver")  # imports `set_forkserver_preload` modules once
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(open_elsewhere, writer), daemon=True)  # type: ignore[arg-type]
    process.start()
    writer.close()
    try:
        assert reader.poll(DEADLINE), "the other process has not reported"
        yield reader.recv()
    finally:
        process.kill()
        process.join(DEADLINE)
        reader.close()
        process.close()


@needs("other_processes")
class CrashTests(StoreTests):
    """Others find what a killed process had claimed, and see nothing of what it had not finished."""

    def test_what_a_killed_process_had_claimed_is_found_again(
        self, store: DelayedMessageStore, open_elsewhere: StoreFactory
    ) -> None:
        store.store(a_message("a"))
        with killed_at_the_end(claim_and_hang, open_elsewhere) as message_id:
            assert message_id == "a"
            assert taken(store, NOON) == []
        self.assert_found_again(store)

    @needs("transactions")
    def test_what_a_killed_process_had_not_committed_is_undone(
        self, store: DelayedMessageStore, open_elsewhere: StoreFactory
    ) -> None:
        store.store(a_message("a"))
        with killed_at_the_end(partial(claim_and_hang, writes=True), open_elsewhere) as message_id:
            assert message_id == "a"
        self.assert_found_again(store)
        assert all_taken(store, NOON + SECOND) == []

    def test_what_a_killed_process_had_stored_is_there(
        self, store: DelayedMessageStore, open_elsewhere: StoreFactory
    ) -> None:
        with killed_at_the_end(store_and_hang, open_elsewhere):
            pass
        assert_only(all_taken(store, NOON), a_message("a"))

    def assert_found_again(self, store: DelayedMessageStore) -> None:
        """Fail unless its claims end: within the lease, and a deadline for slow machines."""
        found: list[str] = []

        def found_again() -> bool:
            found.extend(ids(taken(store, NOON)))
            return bool(found)

        deadline = self.capabilities.lease.total_seconds() + DEADLINE
        eventually(found_again, "the killed process' message is found again", deadline)
        assert found == ["a"]
