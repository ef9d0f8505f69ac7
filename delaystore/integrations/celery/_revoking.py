"""Revoking tasks that wait in the store."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from celery.app.task import Context
from kombu import compression, serialization
from kombu.exceptions import OperationalError

from delaystore.delivery import DelayedDelivery
from delaystore.errors import StoreUnavailableError
from delaystore.integrations.celery._committed import once_committed
from delaystore.integrations.celery._transaction import enlisted, transaction
from delaystore.message import DelayedMessage
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.operable import Way

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
        """What `app.control`, and results, revoke a task or several by."""
        given = [task_id] if isinstance(task_id, str) else list(task_id)
        others = [each for each in given if not is_revoked(each)]
        if others or not given:
            return control.revoke(self, task_id if isinstance(task_id, str) else others, *args, **options)
        return [] if options.get("reply") else None

    return type(control.__name__, (control,), {"revoke": revoke, "__doc__": control.__doc__})


def revoked(app: Any, delivery: DelayedDelivery, task_id: str) -> bool:
    """Cancel a task, and have the result backend say REVOKED, as a worker would.

    In the caller's transaction, which may be rolled back, the result backend is told after the commit.
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
        logger.warning("task %s is revoked, but the result backend does not say so", task_id, exc_info=True)


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
