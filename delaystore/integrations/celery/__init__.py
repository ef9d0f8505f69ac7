"""Celery's `eta` and `countdown` through the store, instead of in a worker's memory; see docs/celery.md."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from delaystore.extras import needed_for

if TYPE_CHECKING:
    from delaystore.integrations.celery._drain import Drained, drain
    from delaystore.integrations.celery._tasks import DelayedTasks
    from delaystore.integrations.celery._transaction import tasks_in

__all__ = ["DelayedTasks", "Drained", "drain", "tasks_in"]

_MODULES: Final = {"DelayedTasks": "_tasks", "Drained": "_drain", "drain": "_drain", "tasks_in": "_transaction"}


def __getattr__(name: str) -> Any:
    """Import at the first use: every `celery` command imports this package, for its own command's sake."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed_for(name):
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
