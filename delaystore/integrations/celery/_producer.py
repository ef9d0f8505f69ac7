"""What Celery publishes a task with, when the task is to be stored."""

from collections.abc import Callable, Mapping
from typing import Any

from delaystore.integrations.celery._declaring import Declarations
from delaystore.integrations.celery._due import Due
from delaystore.integrations.celery._wire import Envelope, envelope


class StoringProducer:
    """Stands in for a `kombu.Producer`, so that all else remains Celery's: signals, events, reply queues.

    The first message published with it is the task: what makes its envelope goes to `keep`, with the policy of retries
    (None: none). What follows, the event that it was sent, is published.
    """

    def __init__(
        self,
        producer: Any,
        due: Due,
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
        """What Celery does before it tries again."""
        self._producer.revive(connection)

    def publish(self, body: Any, **options: Any) -> Any:
        """Store the task; publish what follows."""
        if self._kept:
            if body.get("type") == "task-sent":
                body["eta"] = self._due.at.isoformat()
            return self._producer.publish(body, **options)
        self._declarations.declare(self._producer, options.get("declare"))
        policy = (options.get("retry_policy") or {}) if options.get("retry") else None
        self._keep(lambda: envelope(self._producer, body, self._due.at, self._due.seconds_left, **options), policy)
        self._kept = True
        return None
