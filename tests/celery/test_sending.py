"""What goes to the store, what stays Celery's, and what happens when something is down."""

import math
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.app.control import Control
from celery.signals import after_task_publish, before_task_publish
from kombu.exceptions import OperationalError
from sqlalchemy import QueuePool, create_engine
from sqlalchemy.orm import Session

from delaystore import DelayedDelivery, DelayedDeliverySettings, ManagementOutcome, SqlDelayedMessageStore
from delaystore.errors import ConfigurationError, DuplicateMessageError, InvalidMessageError, StoreUnavailableError
from delaystore.integrations.celery import DelayedTasks, _delivering, tasks_in
from delaystore.message import DelayedMessage
from delaystore.stores import InMemoryDelayedMessageStore
from tests.celery.apps import make_app
from tests.integration.sql_stores import url_for
from tests.integration.test_latest_delivery import to_version_0005

NOWHERE = "amqp://127.0.0.1:1"


class Shaky(InMemoryDelayedMessageStore):
    """Fails as often as it is told; when `late`, after it has stored the message."""

    failures = 0
    late = False

    def store(self, message: DelayedMessage) -> None:
        if self.late:
            super().store(message)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("no answer")
        super().store(message)


@pytest.fixture
def store() -> Shaky:
    return Shaky()


@pytest.fixture
def delivery(store: Shaky) -> Iterator[DelayedDelivery]:
    with DelayedDelivery("tasks", store) as delivery:
        yield delivery


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app whose broker is down, which storing does not need; publishing fails at once."""
    with make_app(NOWHERE, None) as app:
        app.conf.task_publish_retry_policy = {"max_retries": 2, "interval_start": 0, "interval_step": 0}
        app.conf.task_send_sent_event = False
        yield app


def nothing() -> None:
    """A task."""


def waits(delivery: DelayedDelivery, result: Any) -> DelayedMessage:
    found = delivery.get(result.id)
    assert found is not None
    return found


def test_only_what_is_due_beyond_the_threshold_is_stored(app: Celery, delivery: DelayedDelivery) -> None:
    DelayedTasks(app, delivery, threshold=timedelta(seconds=10))
    note = app.tasks["note"]
    for soon in ({}, {"countdown": 10}, {"eta": datetime.now(UTC) + timedelta(seconds=9)}, {"countdown": -5}):
        with pytest.raises(OperationalError):
            note.apply_async(("x",), **soon)
    assert delivery.count() == 0
    waits(delivery, note.apply_async(("x",), countdown=10.5))
    waits(delivery, app.send_task("unknown.by.name", countdown=11))
    assert delivery.count() == 2


def test_a_task_has_a_threshold_of_its_own(app: Celery, delivery: DelayedDelivery) -> None:
    DelayedTasks(app, delivery, threshold=None)
    patient = app.task(name="patient", shared=False, delayed_threshold=5)(nothing)
    waits(delivery, patient.apply_async(countdown=6))
    waits(delivery, app.send_task("patient", countdown=6))
    with pytest.raises(OperationalError):
        app.tasks["note"].apply_async(("x",), countdown=1000)
    never = app.task(name="never", shared=False, delayed_threshold="soon")(nothing)
    with pytest.raises(ConfigurationError, match="delayed_threshold must be a timedelta, a number of seconds"):
        never.apply_async(countdown=6)


def test_expires_is_the_latest_delivery(app: Celery, delivery: DelayedDelivery) -> None:
    DelayedTasks(app, delivery)
    due, note = datetime.now(UTC) + timedelta(days=1), app.tasks["note"]
    until = due + timedelta(hours=1)
    assert waits(delivery, note.apply_async(("x",), eta=due, expires=until)).not_after == until
    counted = waits(delivery, note.apply_async(("x",), countdown=3600, expires=5400))
    assert counted.not_after is not None
    assert abs(counted.not_after - counted.due_time - timedelta(seconds=1800)) < timedelta(seconds=5)
    assert waits(delivery, note.apply_async(("x",), eta=due)).not_after is None
    early = waits(delivery, note.apply_async(("x",), countdown=3600, expires=60))
    assert early.not_after is None, "a worker says that it has expired"


def test_a_store_without_latest_deliveries_keeps_tasks_that_expire(
    app: Celery, store: Shaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shaky, "keeps_not_after", False)
    with DelayedDelivery("tasks", store) as delivery:
        DelayedTasks(app, delivery)
        task = waits(delivery, app.tasks["note"].apply_async(("x",), countdown=3600, expires=5400))
    assert task.not_after is None
    assert "expires" in task.headers


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_an_eta_means_what_celery_s_worker_makes_of_it(app: Celery, delivery: DelayedDelivery, zone: str) -> None:
    """A naive one is in UTC, whatever `timezone` says."""
    DelayedTasks(app, delivery)
    app.conf.timezone = zone
    due = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    for eta in (due, due.replace(tzinfo=None), due.astimezone(ZoneInfo("Asia/Tokyo")), due.isoformat()):
        assert waits(delivery, app.send_task("note", eta=eta)).due_time == due
    before = datetime.now(UTC)
    counted = waits(delivery, app.send_task("note", countdown=3600, eta=due)).due_time
    assert timedelta(0) <= counted - before - timedelta(hours=1) < timedelta(minutes=1)


@pytest.mark.parametrize("countdown", [math.inf, -math.inf, math.nan, 1e12, -1e12, pytest.param(10**400, id="huge")])
def test_a_countdown_that_is_no_time_is_celery_s_own_error(
    app: Celery, delivery: DelayedDelivery, countdown: float
) -> None:
    with pytest.raises((OverflowError, ValueError)) as celery_s:
        app.send_task("note", countdown=countdown)
    DelayedTasks(app, delivery)
    with pytest.raises(celery_s.type, match=re.escape(str(celery_s.value))):
        app.send_task("note", countdown=countdown)
    assert delivery.count() == 0


def test_a_time_that_no_store_has_is_one_line(app: Celery, delivery: DelayedDelivery) -> None:
    DelayedTasks(app, delivery)
    with pytest.raises(InvalidMessageError, match="is out of range; the latest is 9999-12-30"):
        app.send_task("note", eta=datetime(9999, 12, 31, tzinfo=UTC))
    for beyond in ("12030-01-01T00:00:00", "tomorrow"):  # Celery publishes them, and its worker says what it thinks
        with pytest.raises(OperationalError):
            app.send_task("note", eta=beyond)
    assert delivery.count() == 0


def test_signals_tell_of_the_eta(app: Celery, delivery: DelayedDelivery) -> None:
    DelayedTasks(app, delivery)
    heard: list[Any] = []

    def hear(headers: Any, routing_key: str, **_: Any) -> None:
        heard.append((headers["id"], headers["eta"], routing_key))

    before_task_publish.connect(hear)
    after_task_publish.connect(hear)
    try:
        result = app.send_task("note", countdown=3600)
    finally:
        before_task_publish.disconnect(hear)
        after_task_publish.disconnect(hear)
    stored = waits(delivery, result)
    assert heard == [(result.id, stored.headers["delayed_until"], "work")] * 2
    assert stored.headers["eta"] is None


def test_an_eager_task_runs_at_once(app: Celery, delivery: DelayedDelivery) -> None:
    DelayedTasks(app, delivery)
    app.conf.task_always_eager = True
    assert app.tasks["note"].apply_async(("x",), countdown=3600).get() == ["x"]
    assert delivery.count() == 0


def test_installed_once_an_app_and_uninstalled(app: Celery, delivery: DelayedDelivery) -> None:
    tasks = DelayedTasks(app, delivery)
    assert DelayedTasks.of(app) is tasks
    with pytest.raises(ConfigurationError, match=r"'shop' has delayed tasks already; uninstall\(\) them first"):
        DelayedTasks(app, delivery)
    with (
        make_app(NOWHERE, None) as other,
        DelayedDelivery("others", InMemoryDelayedMessageStore()) as others,
    ):
        other.conf.task_send_sent_event = False
        DelayedTasks(other, others)
        waits(others, other.send_task("note", countdown=3600))
        assert delivery.count() == 0
    wrapped, control = app.send_task, app.control
    tasks.uninstall()
    assert type(app.control) is Control
    assert control is not app.control
    tasks.uninstall()
    with pytest.raises(ConfigurationError, match="has no delayed tasks"):
        DelayedTasks.of(app)
    for send in (app.send_task, wrapped):
        with pytest.raises(OperationalError):
            send("note", countdown=3600)
    DelayedTasks(app, delivery)
    waits(delivery, app.send_task("note", countdown=3600))


def test_whatever_connection_is_given(app: Celery, delivery: DelayedDelivery) -> None:
    DelayedTasks(app, delivery)
    with app.connection_for_write() as connection:
        waits(delivery, app.send_task("note", countdown=3600, connection=connection))
        producer = app.amqp.Producer(connection, auto_declare=False)
        waits(delivery, app.send_task("note", countdown=3600, producer=producer))
        waits(delivery, app.send_task("note", countdown=3600, publisher=producer))


def test_an_installation_that_cannot_work_says_so(app: Celery, delivery: DelayedDelivery) -> None:
    with pytest.raises(ConfigurationError, match="delayed tasks need a DelayedDelivery, not a str"):
        DelayedTasks(app, "sqlite://")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="threshold must be a timedelta, a number of seconds, or None; not -1"):
        DelayedTasks(app, delivery, threshold=-1)


def test_installing_reads_no_configuration(delivery: DelayedDelivery) -> None:
    """It may come later, by `config_from_object`; what the app had of its own is there again afterwards."""
    own = type("OwnControl", (Control,), {})
    app = Celery("early", control=own, set_as_current=False)
    tasks = DelayedTasks(app, delivery)
    assert not app.configured
    app.conf.update(broker_url=NOWHERE, control_exchange="mine")
    assert issubclass(type(app.control), own)
    assert app.control.mailbox.namespace == "mine"
    tasks.uninstall()
    assert type(app.control) is own
    app.close()


def test_events_need_no_broker_to_store_a_task(app: Celery, delivery: DelayedDelivery) -> None:
    app.conf.task_send_sent_event = True
    DelayedTasks(app, delivery)
    waits(delivery, app.send_task("note", countdown=3600))


def test_a_store_that_is_down_is_celery_s_operational_error(
    app: Celery, store: Shaky, delivery: DelayedDelivery
) -> None:
    DelayedTasks(app, delivery)
    store.failures = 2
    waits(delivery, app.send_task("note", countdown=3600))
    store.failures = 3
    with pytest.raises(OperationalError, match="the store of delayed tasks: no answer"):
        app.send_task("note", countdown=3600, task_id="lost")
    store.failures = 1
    with pytest.raises(OperationalError):
        app.send_task("note", countdown=3600, retry=False)
    store.failures, store.late = 1, True
    with pytest.raises(OperationalError):
        app.send_task("note", countdown=3600, task_id="late", retry=False)
    assert delivery.count() == 2


def test_an_answer_that_got_lost_is_no_second_task(app: Celery, store: Shaky, delivery: DelayedDelivery) -> None:
    DelayedTasks(app, delivery)
    store.failures, store.late = 1, True
    waits(delivery, app.send_task("note", countdown=3600))
    assert delivery.count() == 1


def test_an_answer_that_got_lost_is_not_taken_for_another_task(
    app: Celery, store: Shaky, delivery: DelayedDelivery
) -> None:
    DelayedTasks(app, delivery)
    app.send_task("note", ("first",), countdown=3600, task_id="one")
    store.failures = 1
    with pytest.raises(DuplicateMessageError):
        app.send_task("note", ("second",), countdown=3600, task_id="one")


def test_a_retry_that_the_store_does_not_take_is_left_to_celery(
    app: Celery, store: Shaky, delivery: DelayedDelivery
) -> None:
    """Celery drops a task whose retry cannot be sent, so whatever is wrong with the store, it is published."""
    DelayedTasks(app, delivery)
    app.conf.broker_url = "memory://"
    with app.connection_for_read() as connection, connection.SimpleQueue("work") as queue:
        store.failures = 3
        app.send_task("note", countdown=3600, task_id="down", retries=1)
        app.send_task("note", countdown=3600, task_id="unfit", retries=1, headers={"share": 0.5})
        app.send_task("note", countdown=3600, task_id="endless", retries=1, time_limit=math.inf)
        published = [queue.get(timeout=5) for _ in range(3)]
        assert [each.headers["id"] for each in published] == ["down", "unfit", "endless"]
        assert all(datetime.fromisoformat(each.headers["eta"]) > datetime.now(UTC) for each in published)
        for each in published:
            each.ack()
    assert delivery.count() == 0


def test_a_task_id_that_waits_is_refused_and_a_repeated_retry_is_not(app: Celery, delivery: DelayedDelivery) -> None:
    DelayedTasks(app, delivery)
    app.send_task("note", ("first",), countdown=3600, task_id="one")
    with pytest.raises(DuplicateMessageError):
        app.send_task("note", ("second",), countdown=3600, task_id="one")
    for attempt in (2, 2, 1):  # a worker that got an earlier attempt twice
        app.send_task("note", countdown=3600, task_id="two", retries=attempt)
    assert waits(delivery, app.AsyncResult("two")).headers["retries"] == 2
    assert delivery.count() == 2


def test_a_retry_waits_for_the_attempt_before_it_to_be_gone(app: Celery, delivery: DelayedDelivery) -> None:
    """The worker may be faster than the dispatcher, which removes what it has delivered."""
    DelayedTasks(app, delivery)
    app.send_task("note", ("earlier",), countdown=3600, task_id="one")
    gone = threading.Timer(0.3, lambda: delivery.cancel("one"))
    gone.start()
    app.send_task("note", ("later",), countdown=7200, task_id="one", retries=1)
    gone.join()
    stored = delivery.get("one")
    assert stored is not None
    assert stored.headers["retries"] == 1


def test_a_retry_whose_earlier_attempt_stays_is_delayed_by_celery(
    app: Celery, delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    DelayedTasks(app, delivery)
    app.send_task("note", ("earlier",), countdown=3600, task_id="one")
    monkeypatch.setattr(_delivering, "TIMEOUT", 0.2)
    with pytest.raises(OperationalError):  # of the broker, to which it is published
        app.send_task("note", ("later",), countdown=7200, task_id="one", retries=1)
    assert "Celery delays it" in caplog.text


def test_revoking_asks_the_workers_for_what_is_not_in_the_store(
    app: Celery, delivery: DelayedDelivery, store: Shaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(Control, "revoke", lambda _, ids, **options: told.append((ids, options)))
    DelayedTasks(app, delivery)
    ids = [app.send_task("note", countdown=3600).id for _ in range(3)]
    app.control.revoke(ids[:2])
    assert app.control.revoke(ids[2], reply=True) == []
    assert (delivery.count(), told) == (0, [])
    app.control.revoke([*ids[:1], "elsewhere"], terminate=True)
    app.AsyncResult("elsewhere").revoke()
    assert told[0] == ([ids[0], "elsewhere"], {"terminate": True})
    assert told[1][0] == "elsewhere"
    dispatched = app.send_task("note", countdown=3600).id
    monkeypatch.setattr(store, "cancel", lambda _: ManagementOutcome.BEING_DISPATCHED)
    app.control.revoke(dispatched)
    assert told[2] == (dispatched, {})
    monkeypatch.setattr(store, "get", lambda _: (_ for _ in ()).throw(StoreUnavailableError("no answer")))
    with pytest.raises(OperationalError, match="no answer"):
        app.control.revoke("any")


def test_a_task_belongs_to_the_caller_s_transaction(app: Celery, sqlite_url: str) -> None:
    engine = create_engine(sqlite_url)
    with DelayedDelivery("tasks", SqlDelayedMessageStore(engine)) as delivery:
        DelayedTasks(app, delivery)
        with Session(engine) as session:
            with tasks_in(session):
                undone = app.send_task("note", countdown=3600)
            session.rollback()
            assert delivery.get(undone.id) is None
            with tasks_in(session):
                kept = app.send_task("note", countdown=3600)
                app.control.revoke(kept.id)
                kept = app.send_task("note", countdown=3600)
            session.commit()
            waits(delivery, kept)
            with tasks_in(session):
                kept.revoke()
            session.rollback()
            waits(delivery, kept)
            with tasks_in(session):
                kept.revoke()
            session.commit()
            assert delivery.get(kept.id) is None
            with tasks_in(session):
                retried = app.send_task("note", countdown=3600, retries=1)
            session.rollback()
            waits(delivery, retried)
        waits(delivery, app.send_task("note", countdown=3600))
    engine.dispose()


def test_a_task_that_expires_is_sent_in_a_transaction_on_tables_of_the_release_before(
    app: Celery, request: pytest.FixtureRequest
) -> None:
    engine = create_engine(url_for(request, "postgresql"))
    store, settings = SqlDelayedMessageStore(engine), DelayedDeliverySettings(automatic_setup=False)
    with DelayedDelivery("tasks", store, settings=settings) as delivery, Session(engine) as session:
        delivery.setup_infrastructure()
        to_version_0005(store)
        DelayedTasks(app, delivery)
        with tasks_in(session):
            kept = app.send_task("note", countdown=3600, expires=7200)
        session.commit()
        assert waits(delivery, kept).not_after is None
    engine.dispose()


@pytest.fixture
def telling_app() -> Iterator[Celery]:
    """An app whose results are in memory."""
    with make_app(NOWHERE, "cache+memory://") as app:
        app.conf.task_send_sent_event = False
        yield app


def test_what_a_transaction_revoked_says_so_once_that_is_committed(telling_app: Celery, sqlite_url: str) -> None:
    engine = create_engine(sqlite_url, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=1)
    with DelayedDelivery("tasks", SqlDelayedMessageStore(sqlite_url)) as delivery, Session(engine) as session:
        DelayedTasks(telling_app, delivery)
        for sent_within in (True, False):
            with tasks_in(session if sent_within else None):
                result = telling_app.send_task("note", countdown=3600)
            with tasks_in(session):
                result.revoke()
            assert result.state == "PENDING"
            session.commit()
            assert result.state == "REVOKED"
        kept, undone = (telling_app.send_task("note", countdown=3600) for _ in range(2))
        with tasks_in(session):
            kept.revoke()
            session.rollback()
            with session.begin_nested() as savepoint:
                undone.revoke()
                savepoint.rollback()
            session.commit()
        assert [kept.state, undone.state] == ["PENDING", "PENDING"]
        waits(delivery, kept)
        waits(delivery, undone)
    engine.dispose()


def test_what_a_plain_connection_revoked_stays_pending(telling_app: Celery, sqlite_url: str) -> None:
    """Nobody hears of its commit."""
    engine = create_engine(sqlite_url)
    with DelayedDelivery("tasks", SqlDelayedMessageStore(sqlite_url)) as delivery:
        DelayedTasks(telling_app, delivery)
        result = telling_app.send_task("note", countdown=3600)
        with engine.begin() as connection, tasks_in(connection):
            result.revoke()
        assert delivery.get(result.id) is None
        assert result.state == "PENDING"
    engine.dispose()


def test_a_store_without_transactions_says_so(app: Celery, delivery: DelayedDelivery) -> None:
    DelayedTasks(app, delivery)
    with tasks_in(object()), pytest.raises(ConfigurationError, match="use a SQL store"):
        app.send_task("note", countdown=3600)
