"""Kill programs, dispatchers and connections; compare the delivery history with the notes of the programs."""

import random
import signal
import time
from contextlib import ExitStack, suppress
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest
from sqlalchemy import text

from delaystore.errors import StoreError
from delaystore.stores.records import Ending
from delaystore.stores.sql import SqlDelayedMessageStore
from delaystore.transports import Transport
from tests.faults.arrivals import drain
from tests.faults.backlog import DESTINATION, open_store
from tests.faults.history_story import OF_DISPATCHERS, Story
from tests.faults.patience import PATIENCE, wait_until
from tests.faults.process import DispatcherProcess
from tests.faults.scale import scaled
from tests.integration.sql_stores import connected
from tests.preloaded.forked import ForkedModule
from tests.servers import Proxy

KILLS = scaled(20, 300)
QUIET = scaled((0.1, 1.0), (0.5, 3.0))
"""Seconds between two kills."""
PROGRAMS = 2
LINGER, LEASE = 0.03, 2.0
"""Seconds."""
BATCH = 100
POLICIES = "error-queue", "drop"
"""`on_expired` of a dispatcher and of its successor, in turn."""
FAR = timedelta(minutes=10)
"""Messages that are due later are not dispatched in the test."""
BACKEND = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY random() LIMIT 1"
)


class Program:
    """A process of `history_program`; one that is killed gets a successor. A context manager."""

    def __init__(self, url: str, folder: Path) -> None:
        self._arguments, self._log = [url, str(folder)], folder / "log"

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = ForkedModule("tests.faults.history_program", self._arguments, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)

    def kill(self) -> None:
        self.__exit__()
        self.__enter__()

    def terminate(self) -> None:
        self._process.terminate()
        assert self._process.wait(PATIENCE) in {0, -signal.SIGTERM}  # the latter of one that has just been started


class Dispatcher:
    """A process that dispatches; one that is killed gets a successor. A context manager."""

    def __init__(self, store: str, transport: str) -> None:
        self._urls, self._policies = (store, transport), cycle(POLICIES)

    def __enter__(self) -> Self:
        store, transport = self._urls
        options = {"linger": LINGER, "lease": LEASE}
        self._process = DispatcherProcess(
            store, transport, **options, batch_size=BATCH, on_expired=next(self._policies)
        )
        self._process.__enter__().await_ready()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.__exit__(*error)

    def kill(self) -> None:
        self.__exit__(None)
        self.__enter__()

    def terminate(self) -> None:
        assert self._process.terminate() == 0


def test_an_entry_is_kept_for_just_those_messages_that_have_left(
    database_url: str,
    rabbitmq_url: str,
    rabbitmq_transport: Transport,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = open_store(database_url)
    store.keep_history(timedelta(hours=1))
    rabbitmq_transport.declare(DESTINATION)
    is_postgresql, is_file = (database_url.startswith(each) for each in ("postgresql", "sqlite"))
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(urlsplit(rabbitmq_url).port or 5672))
        urls = database_url, proxy.url_of(rabbitmq_url)
        dispatchers = [stack.enter_context(Dispatcher(*urls)) for _ in range(1 if is_file else 2)]
        programs = [stack.enter_context(Program(database_url, tmp_path)) for _ in range(PROGRAMS)]
        for _ in range(KILLS):
            time.sleep(random.uniform(*QUIET))
            what = random.choices(["dispatcher", "program", "backend", "broker"], [5, 5, 4 * is_postgresql, 1])[0]
            if what == "broker":
                proxy.cut()
            elif what == "backend":
                with connected(database_url) as connection:
                    connection.execute(BACKEND)
            else:
                (random.choice(dispatchers) if what == "dispatcher" else random.choice(programs)).kill()
            with suppress(StoreError):  # its connection may be the one that was killed
                store.clean_up()
        for program in programs:
            program.terminate()
        wait_until(lambda: not is_anything_due(store), "all that is due was dispatched")
        for dispatcher in dispatchers:
            dispatcher.terminate()
    arrived, failed = (drain(rabbitmq_transport, queue) for queue in (DESTINATION, "error"))
    story = Story(tmp_path, store, arrived, failed)
    store.close()
    with capsys.disabled():
        print(f"\n{KILLS} kills, {story}")  # noqa: T201 - for a campaign's log
    found = list(story.findings())
    assert not found, f"{len(found)} findings:\n" + "\n".join(found[:20])
    assert set(story.endings) == {*OF_DISPATCHERS, Ending.CANCELLED, Ending.REPLACED}
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log, log[-3000:]


def is_anything_due(store: SqlDelayedMessageStore) -> bool:
    first = store.next()
    return first is not None and first <= store.now() + FAR
