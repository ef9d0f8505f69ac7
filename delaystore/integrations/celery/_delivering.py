"""Celery's delayed tasks go into the store: by its producer, in the caller's transaction, or after its commit."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from kombu.exceptions import OperationalError
from kombu.utils import functional
from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from delaystore.delivery import DelayedDelivery, EnlistedDelivery
from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    MessageBeingDispatchedError,
    StoreSetupError,
    StoreUnavailableError,
)
from delaystore.integrations.celery._wire import Envelope, TaskDue, envelope, time_after

_OF_SESSION: Final = "delaystore_celery_committed"
"""The key in Session.info of actions that wait for its commit; one pair of listeners per session serves them all."""


def once_committed(target: Any, action: Callable[[], None]) -> None:
    """Call `action` after the outermost commit of `target`, which `DelayedDelivery.enlist` takes.

    Never, where it is rolled back, and where commits are not reported: by SQLAlchemy's or a driver's connection.
    `action` must not raise.
    """
    session = target() if isinstance(target, scoped_session) else target
    if isinstance(session, Session):
        _of(session).actions.append(action)
    elif hasattr(target, "on_commit") and getattr(target, "in_atomic_block", True):  # Django's connection; tests' own
        target.on_commit(action)


@dataclass
class _UntilCommit:
    actions: list[Callable[[], None]] = field(default_factory=list)
    committed: bool = False


def _of(session: Session) -> _UntilCommit:
    if _OF_SESSION not in session.info:
        session.info[_OF_SESSION] = _UntilCommit()
        event.listen(session, "after_commit", _committed)
        event.listen(session, "after_transaction_end", _ended)
    waiting: _UntilCommit = session.info[_OF_SESSION]
    return waiting


def _committed(session: Session) -> None:
    _of(session).committed = not session.in_nested_transaction()


def _ended(session: Session, transaction: SessionTransaction) -> None:
    """By now the session has given its connection back, which may be the pool's last one."""
    if transaction.parent is None:
        waiting, session.info[_OF_SESSION] = _of(session), _UntilCommit()
        for action in waiting.actions if waiting.committed else ():
            action()


_transaction: Final[ContextVar[Any]] = ContextVar("delaystore_celery_transaction", default=None)
transaction: Final = _transaction.get
"""Returns the value that the block around was given; None: there is none."""


@contextmanager
def tasks_in(connection_or_session: Any) -> Iterator[None]:
    """Store and revoke tasks in your own transaction, within the block; a rollback undoes both.

    Tasks that the store does not keep go to the broker at once, as usual. Retries are stored in transactions of their
    own, as the exception that ends the attempt would roll them back. Other threads have no part in it.

    Args:
        connection_or_session: As `transaction` of `DelayedDelivery.enlist`.

    """
    token = _transaction.set(connection_or_session)
    try:
        yield
    finally:
        _transaction.reset(token)


def enlisted(delivery: DelayedDelivery) -> EnlistedDelivery | None:
    """`delivery` in the transaction of the block around; None: there is none."""
    target = transaction()
    return None if target is None else delivery.enlist(target)


TIMEOUT: Final = 30.0
"""Seconds that a retry waits for the dispatcher to remove the attempt before it."""
_retry_over_time: Any = functional.retry_over_time  # it has no annotations, in a library that says it has
_PAUSE: Final = 0.05
_POLICY: Final = ("max_retries", "interval_start", "interval_step", "interval_max")


class LeftToCelery(Exception):  # noqa: N818 - only the sender sees it
    """A further attempt that the store does not take, or not yet; its text says why."""


class TaskKeeper:
    """Stores one task under its id; `is_retry`: it is another attempt of a running task.

    A retry is no part of the caller's transaction, which the exception that ends the attempt rolls back. It keeps its
    id, by which results are read and tasks revoked: it waits until the attempt before it is removed. `../_taken.py` has
    the rule of frameworks whose retries may get another id.
    """

    def __init__(self, delivery: DelayedDelivery, task_id: str, due: TaskDue, *, is_retry: bool) -> None:
        self._delivery = delivery
        self._is_retry = is_retry
        self._task_id = task_id
        self._due = due
        self._perhaps_stored = False

    def keep(self, make: Callable[[], Envelope], policy: Mapping[str, Any] | None) -> None:
        """Store the task, or raise kombu's OperationalError when the store stays unavailable; `policy` None: try once.

        Raises DuplicateMessageError where another task waits under this id, the errors of `send` and `make`, and
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
        end = time.monotonic() + TIMEOUT
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
        late = time_after(self._due.at, task.headers)
        try:
            self._send_with_max_late(sender, task, late)
        except (ConfigurationError, StoreSetupError):
            if late is None:
                raise
            self._send_with_max_late(sender, task, None)  # the store keeps none, and the worker says that it expired

    def _send_with_max_late(
        self, sender: DelayedDelivery | EnlistedDelivery, task: Envelope, max_late: timedelta | None
    ) -> None:
        sender.send(
            task.destination,
            task.body,
            delay=self._due.delay,
            at=self._due.at if self._due.delay is None else None,
            headers=task.headers,
            properties=task.properties,
            message_id=self._task_id,
            max_late=max_late,
        )

    def _is_stored(self, task: Envelope) -> bool:
        """Whether the waiting message of this id is this attempt or a later one; False: it is being removed.

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


logger = logging.getLogger("delaystore.integrations.celery")
PAUSE: Final = 60.0
"""Seconds until a broker that could not be asked is asked again."""


class Declarations:
    """The queues that this process has declared, each once.

    A task for a queue that no worker has ever declared would be undeliverable when it is due. But storing a task needs
    no broker: where there is none now, the task is stored nevertheless.
    """

    def __init__(self) -> None:
        self._done: set[str] = set()
        self._not_before = 0.0

    def declare(self, producer: Any, entities: Iterable[Any] | None) -> None:
        """Declare `entities`, Celery's queues, by a channel of their own; a failure is logged."""
        missing = [entity for entity in entities or () if entity.name not in self._done]
        if not missing or time.monotonic() < self._not_before:
            return
        connection = producer.connection
        try:
            connection.ensure_connection(max_retries=0)
            for entity in missing:
                try:
                    with connection.channel() as channel:
                        entity(channel).declare()
                except connection.channel_errors as error:  # it is there with other arguments, or forbidden
                    logger.warning("cannot declare the queue %s of a stored task: %s", entity.name, error)
                self._done.add(entity.name)
        except (*connection.connection_errors, OperationalError) as error:
            self._not_before = time.monotonic() + PAUSE
            logger.warning("stored a task, but cannot declare its queue, because the broker fails: %s", error)


class StoringProducer:
    """Stands in for a `kombu.Producer`, so that all else remains Celery's: signals, events, reply queues.

    The first message published with it is the task: the data of its envelope goes to `keep`, with the policy of retries
    (None: none). The next message, the event that it was sent, is published.
    """

    def __init__(
        self,
        producer: Any,
        due: TaskDue,
        keep: Callable[[Callable[[], Envelope], Mapping[str, Any] | None], None],
        declarations: Declarations,
    ) -> None:
        self._producer = producer
        self._declarations = declarations
        self._due = due
        self._keep = keep
        self._kept = False

    @property
    def connection(self) -> Any:
        """The producer's connection to the broker; Celery asks for it, and need not use it."""
        return self._producer.connection

    @property
    def channel(self) -> Any:
        """The producer's channel; a result backend that replies by queues declares one there."""
        return self._producer.channel

    def revive(self, connection: Any) -> None:
        """Celery calls this before it tries again."""
        self._producer.revive(connection)

    def publish(self, body: Any, **options: Any) -> Any:
        """Store the task; publish later messages."""
        if self._kept:
            if body.get("type") == "task-sent":
                body["eta"] = self._due.at.isoformat()
            return self._producer.publish(body, **options)
        self._declarations.declare(self._producer, options.get("declare"))
        policy = (options.get("retry_policy") or {}) if options.get("retry") else None
        self._keep(lambda: envelope(self._producer, body, self._due.at, self._due.seconds_left, **options), policy)
        self._kept = True
        return None
