"""Delayed tasks leave Celery's queues for the store."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

from amqp import Message
from amqp.exceptions import AccessRefused, NotFound

from delaystore.cascades import BrokerClient
from delaystore.cascades.delivery_limits import limit_warning
from delaystore.delivery import DelayedDelivery
from delaystore.errors import (
    ConfigurationError,
    DuplicateMessageError,
    InvalidMessageError,
    MessageBeingDispatchedError,
    TransportSetupError,
    TransportUnavailableError,
)
from delaystore.integrations.celery._tasks import DelayedTasks, seconds
from delaystore.integrations.celery._wire import (
    address,
    kept_properties,
    read_time,
    seconds_until,
    time_to_live,
    without_eta,
)
from delaystore.message import DelayedMessage, are_same_time
from delaystore.transports.rabbitmq.delay_headers import COUNTED_BY_QUEUE

_COUNT: Final = "x-delivery-count"
"""How often a quorum queue had the message back; other queues count nothing."""
_FILES: Final = {"ca_certs": "cafile", "certfile": "certfile", "keyfile": "keyfile"}
"""Names of the files of TLS in `broker_use_ssl`, and in a URL."""


def refuse_limit(connection: Any, queue: str, management: str) -> None:
    """Raise ConfigurationError for a queue with a delivery limit, as the management API at this URL tells.

    Raises as well: ConfigurationError for the API of another broker, TransportUnavailableError, TransportError.
    """
    with BrokerClient(_url(connection), management) as broker:
        warning = limit_warning(broker, queue)
    if warning is not None:
        raise ConfigurationError(f"{warning}; or leave its tasks to Celery's workers")


def refuse_quorum(app: Any, queue: str) -> None:
    """Raise ConfigurationError for queues that the app declares as quorum queues: only the management API tells its
    limit.
    """
    declared = app.amqp.queues.get(queue)
    if ((declared and declared.queue_arguments) or {}).get("x-queue-type") == "quorum":
        raise unknown_limit(queue)


def is_counted(raw: Any) -> bool:
    """Whether a quorum queue counts how often it has this message back, so that the next time may be one too many."""
    return _COUNT in (raw.properties.get("application_headers") or {})


def unknown_limit(queue: str) -> ConfigurationError:
    """The remedy where the limit is unknown."""
    return ConfigurationError(
        f"{queue!r} is a quorum queue, and drain gives back what stays, which RabbitMQ drops beyond a delivery limit; "
        "pass the URL of its management API (--management URL), which shows whether there is a limit"
    )


def _url(connection: Any) -> str:
    """The broker of kombu's `connection`, as delaystore's URL."""
    info = connection.info()
    login = f"{quote(info['userid'], safe='')}:{quote(info['password'], safe='')}"
    host = f"[{info['hostname']}]" if ":" in info["hostname"] else info["hostname"]
    place = f"{login}@{host}:{info['port']}/{quote(info['virtual_host'], safe='')}"
    if not connection.ssl:
        return f"amqp://{place}"
    given = connection.ssl if isinstance(connection.ssl, dict) else {}
    return f"amqps://{place}?" + urlencode({ours: given[name] for name, ours in _FILES.items() if given.get(name)})


def reserved_message(raw: Any, queue: str, tasks: DelayedTasks, threshold: float | None) -> DelayedMessage | None:
    """A message that py-amqp read from `queue`, if it is due later than `threshold` (None: the tasks' own).

    None: it is to stay where it is: due sooner, or no task of protocol 2, or nothing that the store could keep.
    """
    headers = raw.properties.get("application_headers") or {}
    task_id, name, eta = headers.get("id"), headers.get("task"), headers.get("eta")
    due = read_time(tasks.app, eta)
    if due is None or not isinstance(task_id, str) or not isinstance(name, str):
        return None
    beyond = tasks.threshold_of(name) if threshold is None else threshold
    if beyond is None or seconds_until(due) <= beyond:
        return None
    try:
        return DelayedMessage(
            message_id=task_id,
            destination=address("", queue),  # its exchange would give it to other queues again
            due_time=due,
            body=bytes(raw.body),
            headers=without_eta({name: headers[name] for name in headers.keys() - COUNTED_BY_QUEUE}, due),
            properties=_properties(raw.properties, read_time(tasks.app, headers.get("expires")), due),
        )
    except InvalidMessageError:
        return None


def _properties(given: Mapping[str, Any], expires: datetime | None, due: datetime) -> dict[str, Any]:
    properties = kept_properties(given)
    if expires is not None and properties.pop("expiration", None) is not None:
        left = time_to_live((expires - due).total_seconds())
        return properties if left is None else {**properties, "expiration": left}
    return properties


class WorkQueue:
    """A queue, each of whose messages is taken once; unacknowledged messages have their places again at the end.

    `unlimited`: messages may be given back as often as one likes.
    """

    def __init__(self, channel: Any, name: str, *, unlimited: bool) -> None:
        self._channel = channel
        self._name = name
        self._unlimited = unlimited
        self._unsettled = False
        self.ready: int = channel.queue_declare(name, passive=True).message_count
        """How many messages it had at the beginning, without messages that workers have reserved."""

    def messages(self) -> Iterator[Any]:
        """As many as were ready, as py-amqp has them, with their bodies as bytes.

        Raises ConfigurationError at the first that perhaps must not be given back.
        """
        for _ in range(self.ready):
            message = self._channel.basic_get(self._name)
            self._unsettled = False
            if message is None:
                return
            if not self._unlimited and is_counted(message):
                self._replace(message)
                raise unknown_limit(self._name)
            yield message

    def acknowledge(self, delivery_tag: int) -> None:
        """Take a message out of the queue, for good once that is settled."""
        self._channel.basic_ack(delivery_tag)
        self._unsettled = True

    def settle(self) -> None:
        """Wait until the queue has all acknowledgements.

        None has an answer, and the channel of a quorum queue forgets at its end the ones that it has not passed on
        yet: all except the first 32 of many. Messages that are read next, in their order, come after them.
        """
        message = self._channel.basic_get(self._name) if self._unsettled else None
        if message is not None and not self._unlimited and is_counted(message):
            self._replace(message)

    def _replace(self, message: Any) -> None:
        """Put a copy, which was never given back, into the queue, and take the message out then."""
        headers = message.properties["application_headers"]
        kept = {name: headers[name] for name in headers.keys() - COUNTED_BY_QUEUE}
        copy = Message(message.body, **{**message.properties, "application_headers": kept})
        self._channel.basic_publish_confirm(copy, exchange="", routing_key=self._name)
        self.acknowledge(message.delivery_tag)


@contextmanager
def open_queue(app: Any, name: str, management: str | None = None) -> Iterator[WorkQueue]:
    """The queue of that name at the broker of `app`; at the end it has the unacknowledged messages again.

    `management`: the URL of the management API, which tells whether the queue has a delivery limit.
    Raises ConfigurationError where it has one, or may have one; TransportSetupError where there is no such queue;
    TransportUnavailableError when the broker fails.
    """
    with app.connection_for_read() as connection:
        transport = connection.transport
        if transport.driver_type != "amqp":
            raise TransportSetupError(f"only queues of RabbitMQ can be drained, and {transport.driver_type} is none")
        try:
            channel = connection.channel()
            channel.auto_decode = False
            try:
                queue = WorkQueue(channel, name, unlimited=management is not None)
                if management is None:
                    refuse_quorum(app, name)
                else:
                    refuse_limit(connection, name, management)
                try:
                    yield queue
                finally:
                    queue.settle()
            finally:
                channel.close()
        except NotFound:
            raise TransportSetupError(f"there is no queue {name!r} at {connection.as_uri()}") from None
        except AccessRefused as error:
            raise TransportSetupError(f"the broker refuses access: {error}") from None
        except (*connection.connection_errors, *connection.channel_errors) as error:
            raise TransportUnavailableError(f"{connection.as_uri()}: {error or type(error).__name__}") from error


BATCH: Final = 100
"""Tasks stored in one transaction, and acknowledged after it."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of draining a queue, in tasks.

    Attributes:
        stored: Moved into the store; of a dry run: the number that would be.
        known: Waited in the store already, from a run that was killed, and were taken out of the queue.
        left: Are in the queue as before.
        conflicting: Those of `left` under whose id another task waits in the store.
        stopped: Whether it ended before all were looked at.

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
    """Move the delayed tasks of a queue into the store of `DelayedTasks.of(app)`. They come back when they are due.

    A task is stored, committed, then acknowledged: if the process is killed, run it again before the workers start, and
    each task is in one of both, once. Tasks that workers have reserved are not in the queue: stop the workers first.

    Args:
        app: The Celery app.
        queue: The queue's name.
        threshold: A timedelta or seconds; only tasks due later are moved. None: the thresholds of the tasks and of the
            app.
        dry_run: Move nothing, and report the messages that would be moved.
        management: The URL of RabbitMQ's management API, `http[s]://[user[:password]@]host:port`, with the broker's
            login by default. Quorum queues need it: tasks that stay are returned, and RabbitMQ drops messages that
            were returned more often than a delivery limit allows.
        on_progress: Called with the number of messages seen, and the total.
        stop: Asked after each message whether to stop.

    Returns:
        The number of messages by result.

    Example:
        ```python
        drained = drain(app, "celery", dry_run=True, management="http://broker:15672")
        print(drained.stored, "tasks would be moved")
        ```

    Raises:
        ConfigurationError: The app has no delayed tasks, the queue has a delivery limit, or it is a quorum queue and
            `management` is missing.
        TransportSetupError: There is no such queue.
        TransportUnavailableError, StoreError: Broker or store fail; run it again.

    """
    tasks = DelayedTasks.of(app)
    beyond = seconds(threshold, "threshold")
    with open_queue(app, queue, management) as source:
        run = _Drain(tasks.delivery, source, dry_run=dry_run)
        for seen, raw in enumerate(source.messages(), 1):
            run.take(raw.delivery_tag, reserved_message(raw, queue, tasks, beyond))
            on_progress(seen, source.ready)
            if stop():
                run.stopped = True
                break
        run.flush()
    return run.result()


class _Drain:
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
        """Store the taken messages, and acknowledge them then."""
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
        """Whether the waiting message of this id is the same: a fanout gives each queue one of its own."""
        waiting = self._delivery.get(message.message_id)
        return (
            waiting is not None
            and (waiting.destination, waiting.body) == (message.destination, message.body)
            and are_same_time(waiting.due_time, message.due_time)
        )

    def result(self) -> Drained:
        return Drained(self._stored, self._known, self._left, self._conflicting, self.stopped)
