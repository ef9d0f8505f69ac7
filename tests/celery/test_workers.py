"""Real workers get what waited in the store, at its time, and need no change."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.exceptions import TaskRevokedError

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.integrations.celery import DelayedTasks
from delaystore.transports import open_transport
from tests.celery.apps import make_app
from tests.celery.workers import PATIENCE, ran, runs_of, settings, worker
from tests.dispatching import wait_until
from tests.servers import RabbitMQVhosts

DELAY = 1.5


@dataclass(frozen=True)
class Shop:
    """A sender's app, whose worker and dispatcher run."""

    app: Celery
    delivery: DelayedDelivery
    folder: Path

    def runs(self, result: Any, count: int = 1) -> list[dict[str, Any]]:
        """What the task wrote, once it has run so often."""
        wait_until(lambda: len(runs_of(self.folder, result.id)) >= count, lambda: self.log)
        return runs_of(self.folder, result.id)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture(scope="module")
def broker(rabbitmq: RabbitMQVhosts) -> Iterator[str]:
    url = rabbitmq.create_vhost()
    yield url
    rabbitmq.delete_vhost(url)


@pytest.fixture(scope="module")
def store(postgresql: Any) -> Iterator[str]:
    url = postgresql.create_database()
    yield url
    postgresql.drop_database(url)


@pytest.fixture(scope="module")
def shop(broker: str, store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A prefork worker with a classic queue, and results in files."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "results").mkdir()
    backend = f"file://{folder}/results"
    variables = settings(broker, store, folder, backend=backend)
    with (
        DelayedDelivery("tasks", SqlDelayedMessageStore(store), open_transport(broker)) as delivery,
        worker(variables, folder / "log", "--concurrency", "2"),
        make_app(broker, backend) as app,
    ):
        DelayedTasks(app, delivery, threshold=1)
        yield Shop(app, delivery, folder)


def test_a_countdown_waits_in_the_store_and_the_worker_runs_it_at_once(shop: Shop) -> None:
    before = time.time()
    result = shop.app.tasks["note"].apply_async(("hello",), countdown=DELAY)
    waiting = shop.delivery.get(result.id)
    assert waiting is not None
    assert waiting.destination == "work"
    (run,) = shop.runs(result)
    assert run["time"] >= before + DELAY
    assert run["eta"] is None
    assert datetime.fromisoformat(run["delayed_until"]) == pytest.approx(waiting.due_time, abs=timedelta(seconds=1))
    assert result.get(PATIENCE) == ["hello"]
    wait_until(lambda: shop.delivery.get(result.id) is None)  # perhaps after it has run


def test_a_retry_of_a_forked_worker_waits_in_the_store_under_the_same_id(shop: Shop) -> None:
    result = shop.app.send_task("again", ("warehouse",), countdown=DELAY)
    runs = shop.runs(result, 3)
    assert [run["retries"] for run in runs] == [0, 1, 2]
    assert all(run["delayed_until"] and run["eta"] is None for run in runs)
    assert all(after["time"] - before["time"] >= DELAY for before, after in itertools.pairwise(runs))
    assert result.get(PATIENCE) == 2


def test_parts_of_a_canvas_wait_in_the_store(shop: Shop) -> None:
    note = shop.app.tasks["note"]
    header = [note.si(number).set(countdown=DELAY) for number in range(2)]
    collected = chord(header)(note.s("all").set(countdown=DELAY))
    chained = chain(note.si("first"), note.si("second").set(countdown=DELAY)).apply_async()
    grouped = group(note.si("one").set(countdown=DELAY), note.si("two")).apply_async()
    note.apply_async(("main",), link=note.si("linked").set(countdown=DELAY))
    assert grouped.get(timeout=PATIENCE) == [["one"], ["two"]]
    assert chained.get(timeout=PATIENCE) == ["second"]
    assert collected.get(timeout=PATIENCE) == [[[0], [1]], "all"]
    assert shop.runs(collected)[0]["delayed_until"]
    assert shop.runs(chained)[0]["delayed_until"]
    wait_until(lambda: [run for run in ran(shop.folder) if run["call"] == ["linked"] and run["delayed_until"]])


def test_a_revoked_task_never_runs_and_its_result_says_so(shop: Shop) -> None:
    note = shop.app.tasks["note"]
    result = note.apply_async(("never",), countdown=3600)
    two = group(note.si(1).set(countdown=3600), note.si(2).set(countdown=3600)).apply_async()
    result.revoke()
    two.revoke()
    assert shop.delivery.count() == 0
    assert result.state == "REVOKED"
    with pytest.raises(TaskRevokedError):
        two.get(timeout=PATIENCE)


def test_a_chord_of_a_revoked_part_fails_as_celery_s_own(shop: Shop) -> None:
    note = shop.app.tasks["note"]
    collected = chord([note.si(0), note.si(1).set(countdown=3600)])(note.s("all"))
    assert collected.parent is not None
    collected.parent.results[1].revoke()
    with pytest.raises(Exception, match="revoked"):
        collected.get(timeout=PATIENCE)


def test_what_expires_before_it_is_due_is_discarded_by_the_worker(shop: Shop) -> None:
    result = shop.app.tasks["note"].apply_async(("late",), countdown=DELAY, expires=0.2)
    with pytest.raises(TaskRevokedError, match="expired"):
        result.get(timeout=PATIENCE)


def test_a_short_countdown_stays_with_celery(shop: Shop) -> None:
    result = shop.app.tasks["note"].apply_async(("soon",), countdown=0.5)
    assert shop.delivery.get(result.id) is None
    (run,) = shop.runs(result)
    assert run["eta"]


@pytest.mark.long
def test_a_quorum_queue_and_replies_by_queue(rabbitmq_url: str, sqlite_url: str, tmp_path: Path) -> None:
    """The delay is the store's, not that of Celery's cascade of queues."""
    variables = settings(rabbitmq_url, sqlite_url, tmp_path, backend="rpc://", quorum=True)
    with (
        DelayedDelivery("tasks", SqlDelayedMessageStore(sqlite_url), open_transport(rabbitmq_url)) as delivery,
        worker(variables, tmp_path / "log", "--pool", "solo"),
        make_app(rabbitmq_url, "rpc://", quorum=True) as app,
    ):
        DelayedTasks(app, delivery, threshold=1)
        eta = datetime.now(UTC) + timedelta(seconds=DELAY)
        result = app.tasks["note"].apply_async(("by eta",), eta=eta)
        waiting = delivery.get(result.id)
        assert waiting is not None
        assert (waiting.destination, waiting.due_time) == ("/exchanges/work/work", eta)
        assert result.get(timeout=PATIENCE) == ["by eta"]
        (run,) = runs_of(tmp_path, result.id)
        assert run["delivery_info"]["routing_key"] == "work"
        app.backend.result_consumer.stop()


@pytest.mark.long
def test_a_retry_of_a_task_that_came_by_a_native_delay_is_stored_for_its_queue(
    rabbitmq_url: str, sqlite_url: str, tmp_path: Path
) -> None:
    """Such a task says that its exchange is one of the delay's."""
    variables = settings(rabbitmq_url, sqlite_url, tmp_path, backend="rpc://", quorum=True)
    with (
        DelayedDelivery("tasks", SqlDelayedMessageStore(sqlite_url), open_transport(rabbitmq_url)),
        worker(variables, tmp_path / "log", "--pool", "solo"),
        make_app(rabbitmq_url, None, quorum=True) as app,
    ):
        result = app.tasks["again"].apply_async(countdown=2)
        wait_until(lambda: len(runs_of(tmp_path, result.id)) == 3, lambda: (tmp_path / "log").read_text())
        came = [(run["delivery_info"]["exchange"], bool(run["delayed_until"])) for run in runs_of(tmp_path, result.id)]
        assert came == [("celery_delayed_0", False), ("work", True), ("work", True)]
