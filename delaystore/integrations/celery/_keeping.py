"""Storing a task: again while the store is down, and after an earlier attempt of the same task."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kombu.exceptions import OperationalError
from kombu.utils import functional

from delaystore.delivery import DelayedDelivery, EnlistedDelivery
from delaystore.errors import DuplicateMessageError, MessageBeingDispatchedError, StoreUnavailableError
from delaystore.integrations.celery._due import Due
from delaystore.integrations.celery._transaction import enlisted
from delaystore.integrations.celery._wire import Envelope

PATIENCE: Final = 30.0
"""Seconds that a retry waits for the dispatcher to remove the attempt before it."""
_retry_over_time: Any = functional.retry_over_time  # it has no annotations, in a library that says it has
_PAUSE: Final = 0.05
_POLICY: Final = ("max_retries", "interval_start", "interval_step", "interval_max")


class LeftToCelery(Exception):  # noqa: N818 - nobody but the sender sees it
    """A further attempt that the store does not take, or not yet; its text says why."""


class Keeper:
    """Stores one task under its id; `is_retry`: it is another attempt of a running task.

    A retry is no part of the caller's transaction, which the exception that ends the attempt rolls back. It keeps its
    id, by which results are read and tasks revoked: it waits until the attempt before it is gone. `../_taken.py` has
    the rule of frameworks whose retries may get another id.
    """

    def __init__(self, delivery: DelayedDelivery, task_id: str, due: Due, *, is_retry: bool) -> None:
        self._delivery = delivery
        self._is_retry = is_retry
        self._task_id = task_id
        self._due = due
        self._perhaps_stored = False

    def keep(self, make: Callable[[], Envelope], policy: Mapping[str, Any] | None) -> None:
        """Store the task, or raise kombu's OperationalError when the store stays unavailable; `policy` None: try once.

        Raises DuplicateMessageError where another task waits under this id, what `send` and `make` raise, and
        LeftToCelery: for a retry instead of any other error, as Celery drops a task whose retry cannot be sent.
        """
        try:
            self._keep(make(), policy)
        except LeftToCelery:
            raise
        except Exception as error:
            if self._is_retry:
                raise LeftToCelery(str(error)) from error
            if isinstance(error, StoreUnavailableError):
                raise OperationalError(f"the store of delayed tasks: {error}") from error
            raise

    def _keep(self, task: Envelope, policy: Mapping[str, Any] | None) -> None:
        bound = None if self._is_retry else enlisted(self._delivery)
        if bound is not None:  # its transaction has failed with the first failure
            self._send(bound, task)
        elif policy is None:
            self._store(task)
        else:
            limits = {name: policy[name] for name in _POLICY if name in policy}
            _retry_over_time(self._store, (StoreUnavailableError,), (task,), **limits)

    def _store(self, task: Envelope) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self._send(self._delivery, task)
            except MessageBeingDispatchedError:
                pass
            except StoreUnavailableError:
                self._perhaps_stored = True
                raise
            except DuplicateMessageError:
                if self._is_stored(task):
                    return None
            if time.monotonic() > end:
                raise LeftToCelery("the attempt before it, which is delivered, stays in the store")
            time.sleep(_PAUSE)

    def _send(self, sender: DelayedDelivery | EnlistedDelivery, task: Envelope) -> None:
        sender.send(
            task.destination,
            task.body,
            delay=self._due.delay,
            at=self._due.at if self._due.delay is None else None,
            headers=task.headers,
            properties=task.properties,
            message_id=self._task_id,
        )

    def _is_stored(self, task: Envelope) -> bool:
        """Whether what waits under this id is this very attempt or a later one; False: it is about to be gone.

        Re-raises DuplicateMessageError for another task. A worker that got a task twice retries it twice: that is the
        same attempt.
        """
        waiting = self._delivery.get(self._task_id)
        if waiting is None:
            return False
        theirs, ours = _attempt(waiting.headers), _attempt(task.headers)
        if theirs < ours:
            return False
        if ours > _FIRST or (self._perhaps_stored and theirs == ours and waiting.body == task.body):
            return True
        raise DuplicateMessageError([self._task_id]) from None


_FIRST: Final = (0, 0)


def _attempt(headers: Mapping[str, Any]) -> tuple[int, int]:
    """How often a task was replaced, and retried since: what tells apart the messages of one id."""
    nesting, retries = headers.get("replaced_task_nesting"), headers.get("retries")
    return (nesting if isinstance(nesting, int) else 0, retries if isinstance(retries, int) else 0)
