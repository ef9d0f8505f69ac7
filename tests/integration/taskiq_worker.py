"""A taskiq broker and tasks for `taskiq worker tests.integration.taskiq_worker:broker`, by the environment.

BROKER, STORE; `fails` notes its calls in the file NOTES. The first worker that has stored a retry is killed before it
acknowledges the task; taskiq then starts another.
"""

import os
import signal
from pathlib import Path
from typing import Any

from taskiq import SmartRetryMiddleware, TaskiqMiddleware

from delaystore import DelayedDelivery
from delaystore.integrations.taskiq import StoringAioPikaBroker
from delaystore.stores import SqlDelayedMessageStore


class Death(TaskiqMiddleware):
    """Stands before the retries in the list, and is so told of the failure after them."""

    async def on_error(self, message: Any, result: Any, exception: BaseException) -> None:
        died = Path(os.environ["NOTES"] + ".died")
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


if "BROKER" in os.environ:
    delivery = DelayedDelivery("notes", SqlDelayedMessageStore(os.environ["STORE"]))
    broker = StoringAioPikaBroker(delivery, os.environ["BROKER"])
    broker.add_middlewares(Death(), SmartRetryMiddleware(default_delay=3600, default_retry_label=True))

    @broker.task("fails")
    async def fails() -> None:
        """Note the call, and fail."""
        with Path(os.environ["NOTES"]).open("a") as file:
            file.write("called\n")
        raise ConnectionError("no answer")
