"""Celery's `eta` and `countdown` through the store, instead of in a worker's memory; see docs/celery.md."""

from delaystore.errors import MissingDependencyError

try:
    import celery as _celery  # noqa: F401 - only whether it is there
except ModuleNotFoundError as error:
    if error.name != "celery":
        raise
    raise MissingDependencyError(
        "delaystore.integrations.celery needs the library celery, which is not installed; "
        "pip install 'delaystore[celery]'"
    ) from error

from delaystore.integrations.celery._drain import Drained, drain
from delaystore.integrations.celery._tasks import DelayedTasks
from delaystore.integrations.celery._transaction import tasks_in

__all__ = ["DelayedTasks", "Drained", "drain", "tasks_in"]
