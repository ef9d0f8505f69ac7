"""`DelayedTasks`: a Celery application whose delayed tasks are kept in the store, and revoked there."""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from celery.app.task import Context
from celery.utils import uuid
from celery.utils.imports import symbol_by_name
from kombu import compression, serialization
from kombu.exceptions import OperationalError

from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError, StoreUnavailableError
from delaystore.integrations.celery._delivering import (
    Declarations,
    LeftToCelery,
    StoringProducer,
    TaskKeeper,
    enlisted,
    once_committed,
    transaction,
)
from delaystore.integrations.celery._wire import TaskDue, routed
from delaystore.message import DelayedMessage
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.records import Way

if TYPE_CHECKING:
    from delaystore.schedules import Schedule, ScheduleChanges

logger = logging.getLogger("delaystore.integrations.celery")


# they have no annotations, in a library that says it has
_decompress: Any = compression.decompress
_loads: Any = serialization.loads
_prepare_accept_content: Any = serialization.prepare_accept_content


def revoking(control: Any, is_revoked: Callable[[str], bool]) -> Any:
    """A class of `control`, Celery's own, that tells the workers only of tasks that `is_revoked` does not take.

    A class, as the object itself would read the app's configuration, which may not be there yet.
    """

    def revoke(self: Any, task_id: str | Iterable[str], *args: Any, **options: Any) -> Any:
        """Revoke a task or several; `app.control` and results call it."""
        given = [task_id] if isinstance(task_id, str) else list(task_id)
        others = [each for each in given if not is_revoked(each)]
        if others or not given:
            return control.revoke(self, task_id if isinstance(task_id, str) else others, *args, **options)
        return [] if options.get("reply") else None

    return type(control.__name__, (control,), {"revoke": revoke, "__doc__": control.__doc__})


def revoked(app: Any, delivery: DelayedDelivery, task_id: str) -> bool:
    """Cancel a task, and have the result backend say REVOKED, as a worker would.

    In the caller's transaction, which may be rolled back, the result backend is informed after the commit.
    False: the store does not have it, or it is being dispatched: the workers are to revoke it.
    Raises kombu's OperationalError when the store is unavailable.
    """
    try:
        bound = enlisted(delivery)
        place = bound or delivery
        waiting = place.get(task_id)
        if waiting is None or place.changes_as(Way.CELERY).cancel(task_id) is not ManagementOutcome.DONE:
            return False
    except StoreUnavailableError as error:
        raise OperationalError(f"the store of delayed tasks: {error}") from error
    if bound is None:
        _tell(app, waiting)
    else:
        once_committed(transaction(), lambda: _tell(app, waiting, unless_waits_in=delivery))
    return True


def _tell(app: Any, waiting: DelayedMessage, unless_waits_in: DelayedDelivery | None = None) -> None:
    """Have the result backend say REVOKED.

    Not for a task that still waits: a savepoint that was rolled back has undone its revocation.
    """
    task_id = waiting.message_id
    try:
        if unless_waits_in is None or unless_waits_in.get(task_id) is None:
            app.backend.mark_as_revoked(
                task_id,
                "revoked",
                request=_request(app, waiting),
                store_result=not waiting.headers.get("ignore_result"),
            )
    except Exception:
        logger.warning("revoked task %s, but the result backend does not show it", task_id, exc_info=True)


def _request(app: Any, message: DelayedMessage) -> Context:
    """The task's request, as a worker has it: to whom to reply, and the chord that waits for it."""
    embedded = _embedded(app, message) if message.headers.get("group") else {}
    return Context(
        dict(message.headers),
        chord=embedded.get("chord"),
        reply_to=message.properties.get("reply_to"),
        correlation_id=message.properties.get("correlation_id"),
    )


def _embedded(app: Any, message: DelayedMessage) -> dict[str, Any]:
    method = message.headers.get("compression")
    body: Any = _decompress(message.body, method) if method else message.body
    properties = message.properties
    accept = _prepare_accept_content(app.conf.accept_content)
    _, _, embedded = _loads(body, properties.get("content_type"), properties.get("content_encoding"), accept=accept)
    return dict(embedded)


THRESHOLD: Final = 60.0
"""Seconds: a task that is due within them is left to Celery by default."""
_OF_TASK: Final = "delayed_threshold"
_OF_APP: Final = "delayed_tasks"
BEAT: Final = "celery/"
"""The beginning of the names of schedules that come from `beat_schedule`."""


class DelayedTasks:
    """Has tasks of a Celery app that are due later than a threshold wait in a store.

    Construct it wherever tasks are sent, revoked or retried: also in workers, which need nothing else.
    `app.delayed_tasks` is this object.

    Args:
        app: The Celery app.
        delivery: Keeps the tasks.
        threshold: A timedelta or seconds. A task may have its own, as in `@app.task(delayed_threshold=5)`; with
            `delayed_threshold=None` it stays with Celery. None: only tasks with their own threshold are stored.

    Raises:
        ConfigurationError: The app has one already, the threshold is no span of time, or `delivery` is no
            DelayedDelivery.

    Example:
        ```python
        app = Celery("shop", broker="amqp://broker")
        DelayedTasks(app, DelayedDelivery("shop", open_store("postgresql://db/app")))
        remind.apply_async(countdown=3 * 24 * 3600)
        ```

    """

    def __init__(self, app: Any, delivery: DelayedDelivery, *, threshold: timedelta | float | None = THRESHOLD) -> None:
        given: object = delivery
        if not isinstance(given, DelayedDelivery):
            raise ConfigurationError(f"delayed tasks need a DelayedDelivery, not a {type(given).__name__}")
        self.delivery: Final = delivery
        self.app: Final = app
        self._threshold = seconds(threshold, "threshold")
        if _OF_APP in vars(app):
            raise ConfigurationError(
                f"the Celery app {app.main or ''!r} has delayed tasks already; uninstall() them first"
            )
        self._declarations = Declarations()
        self._celery_send_task = app.send_task
        control = revoking(symbol_by_name(app.control_cls), self._is_revoked)
        self._ours = {"send_task": self._send_task, "control_cls": control, _OF_APP: self}
        self._before = {name: vars(app)[name] for name in self._ours if name in vars(app)}
        vars(app).update(self._ours)
        vars(app).pop("control", None)  # made again, of that class, at its next use
        self._installed = True

    @classmethod
    def of(cls, app: Any) -> Self:
        """Return the delayed tasks of an app.

        Args:
            app: The Celery app.

        Raises:
            ConfigurationError: The app has none.

        """
        found = vars(app).get(_OF_APP)
        if not isinstance(found, cls):
            raise ConfigurationError(
                f"the Celery app {app.main or ''!r} has no delayed tasks; write DelayedTasks(app, delivery) beside it"
            )
        return found

    def uninstall(self) -> None:
        """Leave new tasks to Celery again; waiting messages are dispatched anyway. May be called twice."""
        self._installed = False  # other code may have kept or wrapped these since, and still call them
        attributes = vars(self.app)
        for name, ours in self._ours.items():
            if attributes.get(name) == ours:
                del attributes[name]
                attributes.update({name: self._before[name]} if name in self._before else {})
        attributes.pop("control", None)

    def threshold_of(self, name: str, task: Any = None) -> float | None:
        """The threshold of a task, or else of the app.

        Args:
            name: The task's name.
            task: The task; None: it is looked up by its name.

        Returns:
            Seconds; None: such tasks are left to Celery.

        """
        # `app.tasks` would finalize the app, which Celery avoids for tasks that are sent by name
        found = task or self.app._tasks.get(name)
        own = getattr(found, _OF_TASK, self._threshold)
        return seconds(own, _OF_TASK)

    def beat_schedule(self, prefix: str = BEAT) -> "list[Schedule]":
        """Convert the app's `beat_schedule`, with the entry that beat adds for the result backend.

        Args:
            prefix: The beginning of the schedules' names, before the names of the entries.

        Returns:
            A schedule for each entry.

        Raises:
            InvalidScheduleError: Entries cannot be schedules; the message names each of them.
            ConfigurationError: The app uses `task_protocol=1` or `task_always_eager`.

        """
        from delaystore.integrations.celery._beat import beat_entries  # Celery's beat, which few processes need

        return [entry.schedule for entry in beat_entries(self.app, prefix)]

    def put_beat_schedule(self, prefix: str = BEAT, *, dry_run: bool = False) -> "ScheduleChanges":
        """Make the schedules below a prefix those of the app's `beat_schedule`, in one transaction.

        Call it when you deploy the app, and do not run beat any more. It deletes every other schedule whose name begins
        with the prefix.
        The queues of the tasks are declared, if the broker is available.

        Args:
            prefix: The beginning of the schedules' names. Apps that share a store need different ones. End it with `/`,
                because the prefix `shop` would cover `shopping-list` too.
            dry_run: Change nothing.

        Returns:
            The names of schedules that were changed, or with `dry_run` would be changed.

        Raises:
            InvalidScheduleError: Entries cannot be schedules; the message names each of them. Nothing was changed.
            ConfigurationError: The app uses `task_protocol=1` or `task_always_eager`, or the store has no schedules.
            StoreError: The store fails.

        Example:
            ```python
            app.conf.beat_schedule = {"report": {"task": "report", "schedule": crontab(hour=9, minute=0)}}
            app.delayed_tasks.put_beat_schedule()
            ```

        """
        from delaystore.integrations.celery._beat import beat_entries  # as above

        entries = list(beat_entries(self.app, prefix))
        schedules = self.delivery.schedules_as(Way.CELERY)
        changes = schedules.put_all([entry.schedule for entry in entries], prefix=prefix, dry_run=dry_run)
        if not dry_run:
            with self._acquired(None, None) as producer:
                self._declarations.declare(producer, [queue for entry in entries for queue in entry.declare])
        return changes

    def _send_task(
        self,
        name: str,
        args: Any = None,
        kwargs: Any = None,
        countdown: Any = None,
        eta: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        connection: Any = None,
        **options: Any,
    ) -> Any:
        """`app.send_task`, which everything that sends a task calls."""
        due = TaskDue.of(self.app, countdown, eta)
        if due is None or not self._takes(due, name, options.get("task_type")):
            return self._celery_send_task(name, args, kwargs, countdown, eta, task_id, producer, connection, **options)
        task_id = task_id or uuid()
        keeper = TaskKeeper(self.delivery, task_id, due, is_retry=bool(options.get("retries")))
        named = {
            **routed(options),
            "headers": {**(options.get("headers") or {}), "eta": due.at.isoformat()},
        }  # for signals
        with self._acquired(producer or named.pop("publisher", None), connection) as acquired:
            storing = StoringProducer(acquired, due, keeper.keep, self._declarations)
            try:
                return self._celery_send_task(name, args, kwargs, task_id=task_id, producer=storing, **named)
            except LeftToCelery as why:
                logger.warning("cannot store the retry of task %s; Celery delays it: %s", task_id, why)
        return self._celery_send_task(name, args, kwargs, None, due.at, task_id, producer, connection, **options)

    def _takes(self, due: TaskDue, name: str, task: Any) -> bool:
        threshold = self.threshold_of(name, task)
        of_ours = self._installed and self.app.conf.task_protocol == 2
        return of_ours and threshold is not None and due.seconds_left > threshold

    def _acquired(self, producer: Any, connection: Any) -> AbstractContextManager[Any]:
        """The producer that Celery would publish with; it connects when it is used."""
        if connection is not None:
            return nullcontext(self.app.amqp.Producer(connection, auto_declare=False))
        acquired: AbstractContextManager[Any] = self.app.producer_or_acquire(producer)
        return acquired

    def _is_revoked(self, task_id: str) -> bool:
        return self._installed and revoked(self.app, self.delivery, task_id)


def seconds(span: timedelta | float | None, name: str) -> float | None:
    """`span` in seconds; raises ConfigurationError, which calls it `name`, for a value that is no span of time."""
    if isinstance(span, timedelta):
        span = span.total_seconds()
    if span is None or (isinstance(span, int | float) and not isinstance(span, bool) and span >= 0):
        return span
    raise ConfigurationError(f"{name} must be a timedelta, a number of seconds, or None; not {span!r}")
