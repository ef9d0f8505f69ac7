"""A Dramatiq broker and actors for `dramatiq tests.integration.dramatiq_worker`, and for the tests that send to them.

Each actor notes its calls in a file. A worker with DIE_AFTER_RETRY is killed before it acknowledges what failed, when
the retry is stored.
"""

import os
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import dramatiq
from dramatiq.middleware import Middleware, Retries

from delaystore import DelayedDelivery
from delaystore.integrations.dramatiq import StoringRabbitmqBroker
from delaystore.stores import SqlDelayedMessageStore

QUEUE = "notes"


class Death(Middleware):
    """Stands before Retries in the list, and is so told of the failure after it."""

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        if exception is not None:
            os.kill(os.getpid(), signal.SIGKILL)


def note(line: str) -> None:
    """Append a line to the file that NOTES names."""
    with suppress(KeyError), Path(os.environ["NOTES"]).open("a") as file:
        file.write(line + "\n")


def fails(line: str) -> None:
    """Note the call, and fail."""
    note(line)
    raise dramatiq.Retry("again")


def worker_broker() -> StoringRabbitmqBroker:
    """By the environment: BROKER, STORE, and perhaps DIE_AFTER_RETRY."""
    delivery = DelayedDelivery("notes", SqlDelayedMessageStore(os.environ["STORE"]))
    retries: list[Middleware] = [Retries(min_backoff=3_600_000)]
    middleware = [Death(), *retries] if "DIE_AFTER_RETRY" in os.environ else retries
    return StoringRabbitmqBroker(delivery, url=os.environ["BROKER"], middleware=middleware, threshold=timedelta(0))


if "BROKER" in os.environ:
    broker = worker_broker()
    dramatiq.actor(broker=broker, queue_name=QUEUE)(note)
    dramatiq.actor(broker=broker, queue_name=QUEUE)(fails)
