"""Declaring queues when a task is stored, as Celery does when it publishes one."""

import logging
import time
from collections.abc import Iterable
from typing import Any, Final

from kombu.exceptions import OperationalError

logger = logging.getLogger("delaystore.integrations.celery")

PAUSE: Final = 60.0
"""Seconds until a broker that could not be asked is asked again."""


class Declarations:
    """The queues that this process has declared, each once.

    A task for a queue that no worker has ever declared would be undeliverable when it is due. But storing a task needs
    no broker: where there is none now, the task is stored all the same.
    """

    def __init__(self) -> None:
        self._done: set[str] = set()
        self._not_before = 0.0

    def declare(self, producer: Any, entities: Iterable[Any] | None) -> None:
        """Declare `entities`, Celery's queues, by a channel of their own; what fails is logged."""
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
                    logger.warning("the queue %s of a stored task could not be declared: %s", entity.name, error)
                self._done.add(entity.name)
        except (*connection.connection_errors, OperationalError) as error:
            self._not_before = time.monotonic() + PAUSE
            logger.warning("a task is stored, but its queue could not be declared, as the broker fails: %s", error)
