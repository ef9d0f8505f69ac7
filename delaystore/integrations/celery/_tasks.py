"""A Celery app whose delayed tasks wait in the store."""

import logging
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Final, Self

from celery.utils import uuid
from celery.utils.imports import symbol_by_name

from delaystore.delivery import DelayedDelivery
from delaystore.errors import ConfigurationError
from delaystore.integrations.celery._declaring import Declarations
from delaystore.integrations.celery._due import Due
from delaystore.integrations.celery._keeping import Keeper, LeftToCelery
from delaystore.integrations.celery._producer import StoringProducer
from delaystore.integrations.celery._revoking import revoked, revoking
from delaystore.integrations.celery._wire import routed

logger = logging.getLogger("delaystore.integrations.celery")

THRESHOLD: Final = 60.0
"""Seconds: a task that is due within them is left to Celery, unless told otherwise."""
_OF_TASK: Final = "delayed_threshold"
_OF_APP: Final = "delayed_tasks"


class DelayedTasks:
    """From construction on, tasks of `app` that are due later than `threshold` wait in the store of `delivery`.

    `threshold`: a timedelta or seconds; None: only for tasks that say it themselves, as
    `@app.task(delayed_threshold=5)` does; with `delayed_threshold=None` a task stays with Celery.
    Wanted wherever tasks are sent, revoked or retried: also in workers, which need nothing else. `app.delayed_tasks` is
    this object.

    Raises ConfigurationError for an app that has one already, for a threshold that is no span of time,
    and for anything else than a DelayedDelivery.
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
        vars(app).pop("control", None)  # made anew, of that class, when somebody asks for it
        self._installed = True

    @classmethod
    def of(cls, app: Any) -> Self:
        """Those of `app`; raises ConfigurationError where it has none."""
        found = vars(app).get(_OF_APP)
        if not isinstance(found, cls):
            raise ConfigurationError(
                f"the Celery app {app.main or ''!r} has no delayed tasks; write DelayedTasks(app, delivery) beside it"
            )
        return found

    def uninstall(self) -> None:
        """Leave new tasks to Celery again; what waits in the store is dispatched all the same. May be called twice."""
        self._installed = False  # somebody may have kept or wrapped these since, and go on calling them
        attributes = vars(self.app)
        for name, ours in self._ours.items():
            if attributes.get(name) == ours:
                del attributes[name]
                attributes.update({name: self._before[name]} if name in self._before else {})
        attributes.pop("control", None)

    def threshold_of(self, name: str, task: Any = None) -> float | None:
        """Seconds: of the task of that name, or else of the app; None: such tasks are left to Celery."""
        # `app.tasks` would finalize the app, which Celery avoids for tasks that are sent by name
        found = task or self.app._tasks.get(name)
        own = getattr(found, _OF_TASK, self._threshold)
        return seconds(own, _OF_TASK)

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
        due = Due.of(self.app, countdown, eta)
        if due is None or not self._takes(due, name, options.get("task_type")):
            return self._celery_send_task(name, args, kwargs, countdown, eta, task_id, producer, connection, **options)
        task_id = task_id or uuid()
        keeper = Keeper(self.delivery, task_id, due, is_retry=bool(options.get("retries")))
        told = {
            **routed(options),
            "headers": {**(options.get("headers") or {}), "eta": due.at.isoformat()},
        }  # for signals
        with self._acquired(producer or told.pop("publisher", None), connection) as acquired:
            storing = StoringProducer(acquired, due, keeper.keep, self._declarations)
            try:
                return self._celery_send_task(name, args, kwargs, task_id=task_id, producer=storing, **told)
            except LeftToCelery as why:
                logger.warning("the retry of task %s is not stored; Celery delays it: %s", task_id, why)
        return self._celery_send_task(name, args, kwargs, None, due.at, task_id, producer, connection, **options)

    def _takes(self, due: Due, name: str, task: Any) -> bool:
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
    """`span` in seconds; raises ConfigurationError, which calls it `name`, for what is no span of time."""
    if isinstance(span, timedelta):
        span = span.total_seconds()
    if span is None or (isinstance(span, int | float) and not isinstance(span, bool) and span >= 0):
        return span
    raise ConfigurationError(f"{name} must be a timedelta, a number of seconds, or None; not {span!r}")
