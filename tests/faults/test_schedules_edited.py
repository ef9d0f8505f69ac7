"""Edit, pause, resume and delete schedules while dispatchers make and deliver their occurrences."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Event
from typing import Final

from sqlalchemy import Connection, create_engine, text

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import Dispatcher
from delaystore.message import DelayedMessage
from delaystore.schedules import Schedules
from delaystore.stores.schedules import OCCURRENCES, nominal_time, schedule_rows
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.testing import RecordingTransport
from tests.dispatching import running, wait_until
from tests.faults.backlog import DESTINATION, ENDPOINT, open_store
from tests.faults.scale import scaled

SCHEDULES, EDITORS = scaled((50, 3), (400, 8))
SECONDS: Final = scaled(4.0, 120.0)
SECOND: Final = timedelta(seconds=1)


@dataclass
class Span:
    """A time in which a schedule made occurrences: those after `after` and up to `until` are due.

    Attributes:
        after: When it was created or resumed.
        until: When it was paused; or a time shortly before it was deleted.
        ended: A time shortly after it was paused or deleted: an occurrence of the time until then may be claimed.
        waiting: Ids of occurrences that waited when it was deleted: each one is deleted or delivered.

    """

    after: datetime
    until: datetime
    ended: datetime
    waiting: set[str]

    def counts(self, name: str) -> Iterator[tuple[str, bool]]:
        """The ids of occurrences that may arrive, and whether they must."""
        nominal = self.after.replace(microsecond=0) + SECOND
        while nominal <= self.ended:
            found = f"{OCCURRENCES}{name}/{nominal:%Y-%m-%dT%H:%M:%SZ}"
            yield found, nominal <= self.until and found not in self.waiting
            nominal += SECOND


@dataclass
class Journal:
    """The changes of one schedule.

    Attributes:
        name: Its name.
        version: The version that its body names.
        edits: Times shortly after an edit was committed, each with its version.
        spans: The times in which it made occurrences.
        after: When it was created or resumed; None: it is paused or deleted.
        is_there: Whether it is not deleted.

    """

    name: str
    version: int = 0
    edits: list[tuple[datetime, int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    after: datetime | None = None
    is_there: bool = False

    def end(self, until: datetime, ended: datetime, waiting: set[str]) -> None:
        assert self.after is not None
        self.spans.append(Span(self.after, until, ended, waiting))
        self.after = None


class Editor:
    """Changes schedules, each change in a transaction that also looks for occurrences of a former version."""

    def __init__(self, url: str) -> None:
        self._store = SqlDelayedMessageStore(url)
        self._delivery = DelayedDelivery(ENDPOINT, self._store)
        self._engine = create_engine(url)
        self.findings: list[str] = []

    def close(self) -> None:
        self._delivery.close()
        self._engine.dispose()

    def put(self, journal: Journal) -> None:
        journal.version += 1
        was_there, body = journal.is_there, str(journal.version).encode()
        with self._engine.begin() as connection:
            schedules = self._delivery.enlist(connection).schedules
            schedules.put(journal.name, every=1, catch_up="all", destination=DESTINATION, body=body)
            changed = self._changed(schedules, journal)
            self._look(connection, journal, "AND body <> :body", body)
        journal.edits.append((self._store.now(), journal.version))
        if not was_there:
            journal.is_there, journal.after = True, changed

    def pause(self, journal: Journal) -> None:
        with self._engine.begin() as connection:
            schedules = self._delivery.enlist(connection).schedules
            assert schedules.pause(journal.name)
            changed = self._changed(schedules, journal)
            self._look(connection, journal, "AND next_attempt > clock_timestamp()")
        journal.end(changed, self._store.now(), set())

    def resume(self, journal: Journal) -> None:
        with self._engine.begin() as connection:
            schedules = self._delivery.enlist(connection).schedules
            assert schedules.resume(journal.name)
            journal.after = self._changed(schedules, journal)

    def delete(self, journal: Journal) -> None:
        until = self._store.now()
        with self._engine.begin() as connection:
            waiting = set(self._ids(connection, journal, ""))
            assert self._delivery.enlist(connection).schedules.delete(journal.name)
            self._look(connection, journal, "")
        journal.is_there = False
        if journal.after is not None:
            journal.end(until, self._store.now(), waiting)

    def change(self, journal: Journal) -> None:
        """Make any change that is possible now."""
        if not journal.is_there:
            self.put(journal)
            return
        pause_or_resume = self.resume if journal.after is None else self.pause
        random.choice([self.put, self.put, self.put, pause_or_resume, pause_or_resume, self.delete])(journal)

    def _changed(self, schedules: Schedules, journal: Journal) -> datetime:
        state = schedules.get(journal.name)
        assert state is not None
        return state.changed

    def _ids(self, connection: Connection, journal: Journal, condition: str, **values: object) -> list[str]:
        statement = f"SELECT message_id FROM {ENDPOINT}_delayed WHERE message_id LIKE :ids {condition}"
        found = connection.execute(text(statement), {"ids": f"{OCCURRENCES}{journal.name}/%", **values})
        return list(found.scalars())

    def _look(self, connection: Connection, journal: Journal, condition: str, body: bytes = b"") -> None:
        """Note occurrences that should be gone, and that no dispatcher has locked."""
        values = {"body": body} if body else {}
        for message_id in self._ids(connection, journal, f"{condition} FOR UPDATE SKIP LOCKED", **values):
            self.findings.append(f"{message_id} waits after a change to version {journal.version}")


def test_after_an_edit_no_occurrence_of_a_former_version_is_made(postgresql_url: str) -> None:
    journals = [Journal(f"s{number:03}") for number in range(SCHEDULES)]
    transport, over = RecordingTransport(), Event()
    transport.declare(DESTINATION)
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(open_store(postgresql_url))) for _ in range(3)]
        editors = [stack.enter_context(closing(Editor(postgresql_url))) for _ in range(EDITORS)]
        for journal in journals:
            editors[0].put(journal)

        def edit(number: int) -> None:
            while not over.is_set():
                editors[number].change(random.choice(journals[number::EDITORS]))

        with running(Dispatcher(stores[0], transport)), running(Dispatcher(stores[1], transport)):
            with ThreadPoolExecutor(EDITORS + 1) as threads:
                jobs = [threads.submit(edit, number) for number in range(EDITORS)]
                jobs.append(threads.submit(hurry, stores[2], [each.name for each in journals], over.is_set))
                time.sleep(SECONDS)
                over.set()
            for job in jobs:
                job.result()
            for journal in journals:
                if journal.after is not None:
                    editors[0].pause(journal)
            wait_until(lambda: stores[2].count() == 0, "all due occurrences are delivered")
        findings = [finding for editor in editors for finding in editor.findings]
    sent = Arrived(transport.sent)
    findings += [finding for journal in journals for finding in sent.wrong(journal)]
    assert sum(len(journal.edits) for journal in journals) > 2 * SCHEDULES
    assert not findings, f"{len(findings)} findings:\n" + "\n".join(findings[:20])


def hurry(store: SqlDelayedMessageStore, names: list[str], is_over: Callable[[], bool]) -> None:
    """Let dispatchers look at schedules much sooner than they would, so that they make occurrences all the time."""
    while not is_over():
        with store.transaction() as transaction:
            rows = schedule_rows(transaction)
            found = rows.lock(random.sample(names, 5)).values()
            rows.advance([replace(each, look_at=store.now()) for each in found if each.look_at is not None])
        time.sleep(0.01)


class Arrived:
    """The occurrences that arrived."""

    def __init__(self, messages: Sequence[DelayedMessage]) -> None:
        self._messages = messages
        self._counts = Counter(each.message_id for each in messages)

    def wrong(self, journal: Journal) -> Iterator[str]:
        """Describe each fault of a schedule's occurrences."""
        expected = dict(each for span in journal.spans for each in span.counts(journal.name))
        own = [each for each in self._messages if nominal_time(each.message_id, journal.name) is not None]
        yield from (f"{each} is lost" for each, must in expected.items() if must and not self._counts[each])
        for message in own:
            message_id, version = message.message_id, int(message.body)
            if self._counts[message_id] > 1:
                yield f"{message_id} arrived {self._counts[message_id]} times"
            if message_id not in expected:
                yield f"{message_id} arrived while its schedule was paused or deleted"
            newest = max((edit for edited, edit in journal.edits if edited < message.due_time), default=0)
            if version < newest:
                yield f"{message_id} is of version {version}, though version {newest} was committed before it was due"
