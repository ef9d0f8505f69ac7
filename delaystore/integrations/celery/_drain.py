"""Leaving Celery's own ETAs: tasks that wait in a queue move into the store."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from delaystore.delivery import DelayedDelivery
from delaystore.errors import DuplicateMessageError, InvalidMessageError, MessageBeingDispatchedError
from delaystore.integrations.celery._queue import WorkQueue, open_queue
from delaystore.integrations.celery._reserved import reserved_message
from delaystore.integrations.celery._tasks import DelayedTasks, seconds
from delaystore.message import DelayedMessage, are_same_time

BATCH: Final = 100
"""Tasks stored in one transaction, and acknowledged after it."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What became of a queue's messages.

    `stored`: moved into the store; of a dry run: what would be. `known`: waited in the store already, from a run that
    was killed, and were taken out of the queue. `left`: are in the queue as before; `conflicting` of them because
    another task waits in the store under their id. `stopped`: before all were looked at.
    """

    stored: int = 0
    known: int = 0
    left: int = 0
    conflicting: int = 0
    stopped: bool = False


def drain(
    app: Any,
    queue: str,
    *,
    threshold: timedelta | float | None = None,
    dry_run: bool = False,
    management: str | None = None,
    on_progress: Callable[[int, int], object] = lambda _seen, _of: None,
    stop: Callable[[], bool] = lambda: False,
) -> Drained:
    """Move the tasks of `queue` that are due later than `threshold` into the store of `DelayedTasks.of(app)`.

    They come back to this queue when they are due. `threshold`: a timedelta or seconds; None: what the tasks and the
    app have. A task is stored, committed, then acknowledged: if this is killed, run it again before the workers start,
    and each task is in one of both, once. What workers have reserved is not in the queue: stop them first.
    `on_progress` hears how many messages it has seen of how many. `stop` is asked after each.

    `management`: the URL of RabbitMQ's management API, `http[s]://[user[:password]@]host:port`, with the broker's login
    by default; quorum queues need it, for what stays is given back, and beyond a delivery limit RabbitMQ drops that.

    Raises ConfigurationError for an app without delayed tasks, a queue with a delivery limit, and a quorum queue
    without `management`; TransportSetupError for a queue that is not there; TransportUnavailableError and StoreError
    for a broker and a store that fail: run it again then.
    """
    tasks = DelayedTasks.of(app)
    beyond = seconds(threshold, "threshold")
    with open_queue(app, queue, management) as source:
        run = _Run(tasks.delivery, source, dry_run=dry_run)
        for seen, raw in enumerate(source.messages(), 1):
            run.take(raw.delivery_tag, reserved_message(raw, queue, tasks, beyond))
            on_progress(seen, source.ready)
            if stop():
                run.stopped = True
                break
        run.flush()
    return run.result()


class _Run:
    """Tasks on their way from the queue to the store."""

    def __init__(self, delivery: DelayedDelivery, source: WorkQueue, *, dry_run: bool) -> None:
        self.stopped = False
        self._delivery = delivery
        self._source = source
        self._dry_run = dry_run
        self._batch: list[tuple[int, DelayedMessage]] = []
        self._stored = self._known = self._left = self._conflicting = 0

    def take(self, tag: int, message: DelayedMessage | None) -> None:
        """A message for the store; None: it stays in the queue."""
        if message is None:
            self._left += 1
            return
        self._batch.append((tag, message))
        if len(self._batch) == BATCH:
            self.flush()

    def flush(self) -> None:
        """Store what was taken, and acknowledge it then."""
        batch, self._batch = self._batch, []
        if self._dry_run or not batch:
            self._stored += len(batch)
            return
        try:
            self._delivery.send_many([message for _, message in batch])
        except (DuplicateMessageError, InvalidMessageError, MessageBeingDispatchedError):
            for tag, message in batch:
                self._one(tag, message)
            return
        self._stored += len(batch)
        for tag, _ in batch:
            self._source.acknowledge(tag)

    def _one(self, tag: int, message: DelayedMessage) -> None:
        try:
            self._delivery.send_many([message])
        except DuplicateMessageError:
            if not self._is_stored(message):
                self._conflicting += 1
                self._left += 1
                return
            self._known += 1
        except (InvalidMessageError, MessageBeingDispatchedError):
            self._left += 1
            return
        else:
            self._stored += 1
        self._source.acknowledge(tag)

    def _is_stored(self, message: DelayedMessage) -> bool:
        """Whether what waits under this id is the same message: a fanout gives each queue one of its own."""
        waiting = self._delivery.get(message.message_id)
        return (
            waiting is not None
            and (waiting.destination, waiting.body) == (message.destination, message.body)
            and are_same_time(waiting.due_time, message.due_time)
        )

    def result(self) -> Drained:
        return Drained(self._stored, self._known, self._left, self._conflicting, self.stopped)
