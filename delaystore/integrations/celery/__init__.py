"""Celery's `eta` and `countdown` through the store, instead of in a worker's memory; see docs/celery.md."""

from typing import TYPE_CHECKING, Final

from delaystore.extras import lazily

if TYPE_CHECKING:
    from delaystore.integrations.celery._drain import Drained, drain
    from delaystore.integrations.celery._tasks import DelayedTasks
    from delaystore.integrations.celery._transaction import tasks_in

__all__ = ["DelayedTasks", "Drained", "drain", "tasks_in"]

_MODULES: Final = {"DelayedTasks": "_tasks", "Drained": "_drain", "drain": "_drain", "tasks_in": "_transaction"}
__getattr__, __dir__ = lazily(__name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()})
