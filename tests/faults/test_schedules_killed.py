"""Kill dispatchers and their database, and step its clock; each nominal time has one entry in the delivery history."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta

import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.schedules import Schedule, ScheduleState
from delaystore.stores.history import HistoryEntry, HistoryFilter
from delaystore.stores.records import Ending
from delaystore.stores.schedules import OCCURRENCES
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import Transport
from tests.faults.backlog import DESTINATION, ENDPOINT, open_store
from tests.faults.patience import wait_until
from tests.faults.process import DispatcherProcess
from tests.faults.scale import scaled
from tests.servers import PostgreSQL, ShiftedClock
from tests.servers.server import Server

SCHEDULES, EVERY = scaled((150, 3), (10_000, 60))
"""How many schedules, and the seconds between two occurrences of each."""
DISPATCHERS = 4
KILLS = scaled(12, 200)
QUIET = scaled((0.1, 0.4), (0.5, 3.0))
"""Seconds between two kills."""
RESTARTS = scaled(1, 8)
STEPS = scaled([200.0, -30.0], [200.0, -30.0, 45.0, -150.0, 600.0, 3.0])
"""Seconds by which the clock of the database steps."""
PAGE = 1_000


class Dispatchers:
    """Processes that dispatch; one that is killed gets a successor. A context manager."""

    def __init__(self, store: str, transport: str) -> None:
        self._urls = store, transport
        self._stack = ExitStack()

    def __enter__(self) -> "Dispatchers":
        self._processes = [self._started() for _ in range(DISPATCHERS)]
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def kill_one(self) -> None:
        number = random.randrange(DISPATCHERS)
        self._processes[number].kill()
        self._processes[number] = self._started()

    def _started(self) -> DispatcherProcess:
        return self._stack.enter_context(DispatcherProcess(*self._urls, linger=0.02, batch_size=200)).await_ready()


@pytest.fixture
def database(start_server: Callable[[Callable[[], Server]], Server]) -> PostgreSQL:
    server = start_server(lambda: PostgreSQL({"fsync": "off"}, clock=ShiftedClock()))
    assert isinstance(server, PostgreSQL)
    return server


def test_each_nominal_time_is_delivered_once_and_none_early(
    database: PostgreSQL, rabbitmq_url: str, rabbitmq_transport: Transport, capsys: pytest.CaptureFixture[str]
) -> None:
    url = database.create_database()
    store = open_store(url)
    store.keep_history(timedelta(days=1))
    rabbitmq_transport.declare(DESTINATION)
    schedules = [
        Schedule.of(
            f"checked/{number}", every=EVERY, destination=DESTINATION, body=b"", catch_up="all", jitter=number % 2
        )
        for number in range(SCHEDULES)
    ]
    with DelayedDelivery(ENDPOINT, SqlDelayedMessageStore(url)) as delivery:
        delivery.schedules.put_all(schedules, prefix="checked/")
        starts = {each.name: each.schedule.starts for each in states_of(delivery)}
    with Dispatchers(url, rabbitmq_url) as dispatchers:
        for fault in faults(database, dispatchers):
            time.sleep(random.uniform(*QUIET))
            fault()
        wait_until(lambda: store.now() is not None, "the database answers")
        until = store.now()
        wait_until(lambda: is_done(store, until), "all occurrences of that time are dispatched")
    found = defaultdict[str, list[HistoryEntry]](list)
    for entry in entries_of(store):
        found[entry.message_id.removeprefix(OCCURRENCES).rpartition("/")[0]].append(entry)
    store.close()
    made = sum(len(each) for each in found.values())
    with capsys.disabled():
        print(f"\n{made} occurrences of {SCHEDULES} schedules, {KILLS} kills")  # noqa: T201 - for a campaign's log
    findings = [line for name, begin in starts.items() for line in wrong(name, begin, until, found[name])]
    assert not findings, f"{len(findings)} findings:\n" + "\n".join(findings[:20])


def faults(database: PostgreSQL, dispatchers: Dispatchers) -> Sequence[Callable[[], None]]:
    def restart() -> None:
        database.kill()
        database.start()

    def step(seconds: float) -> Callable[[], None]:
        def stepped() -> None:
            assert database.clock is not None
            database.clock.set(database.clock.offset + seconds)

        return stepped

    others = [*[restart] * RESTARTS, *map(step, STEPS)]
    chosen: list[Callable[[], None]] = [dispatchers.kill_one] * KILLS
    for place, fault in zip(sorted(random.sample(range(len(chosen)), len(others))), others, strict=True):
        chosen.insert(place, fault)
    return chosen


def is_done(store: SqlDelayedMessageStore, until: datetime) -> bool:
    """Whether occurrences up to `until` are made, and dispatched."""
    first = store.next()
    with store.transaction() as transaction:
        look_at = transaction.schedule_rows.next_look()
    return (first is None or first > until) and look_at is not None and look_at > until


def wrong(name: str, begin: datetime | None, until: datetime, entries: Sequence[HistoryEntry]) -> Iterator[str]:
    """Describe each fault of a schedule's entries."""
    assert begin is not None
    every = timedelta(seconds=EVERY)
    expected = {begin + every * number for number in range(1, (until - begin) // every + 1)}
    counts = Counter(datetime.fromisoformat(entry.message_id.rpartition("/")[2]) for entry in entries)
    for nominal in sorted(expected - counts.keys()):
        yield f"{name}: no occurrence at {nominal}"
    for nominal, count in counts.items():
        if count > 1:
            yield f"{name}: {count} occurrences at {nominal}"
    for entry in entries:
        nominal = datetime.fromisoformat(entry.message_id.rpartition("/")[2])
        if entry.ending is not Ending.DELIVERED:
            yield f"{name}: {entry.ending} at {nominal}"
        if entry.ended < entry.due_time or entry.due_time < nominal:
            yield f"{name}: {nominal} was due at {entry.due_time}, and delivered at {entry.ended}"


def states_of(delivery: DelayedDelivery) -> Iterator[ScheduleState]:
    after: str | None = None
    while page := delivery.schedules.list(after=after, limit=PAGE):
        yield from page
        after = page[-1].name


def entries_of(store: SqlDelayedMessageStore) -> Iterator[HistoryEntry]:
    page = store.history(HistoryFilter(), limit=PAGE)
    yield from page.entries
    while page.next_key is not None:
        page = store.history(HistoryFilter(), after=page.next_key, limit=PAGE)
        yield from page.entries
