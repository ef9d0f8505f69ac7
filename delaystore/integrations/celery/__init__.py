"""Celery's `eta` and `countdown` through the store, instead of in a worker's memory; see docs/how-to/celery.md."""

from typing import TYPE_CHECKING

from delaystore.registry import lazily

if TYPE_CHECKING:
    from delaystore.integrations.celery._delivering import tasks_in
    from delaystore.integrations.celery._draining import Drained, drain
    from delaystore.integrations.celery._tasks import DelayedTasks

__all__ = ["DelayedTasks", "Drained", "drain", "tasks_in"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "DelayedTasks": "delaystore.integrations.celery._tasks",
        "Drained": "delaystore.integrations.celery._draining",
        "drain": "delaystore.integrations.celery._draining",
        "tasks_in": "delaystore.integrations.celery._delivering",
    },
)
