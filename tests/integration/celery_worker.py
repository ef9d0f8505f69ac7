"""A Celery app whose task notes its calls in a file.

It has quorum queues, and so native delayed delivery; with CELERY_QUEUE_TYPE=classic the worker keeps what is not due.
"""

import json
import os
import time
from pathlib import Path

from celery import Celery

QUEUE_TYPE = os.environ.get("CELERY_QUEUE_TYPE", "quorum")

app = Celery(
    broker=os.environ["CELERY_BROKER"],
    task_default_queue=os.environ["CELERY_QUEUE"],
    task_default_queue_type=QUEUE_TYPE,
    task_default_exchange=os.environ["CELERY_QUEUE"],
    task_default_exchange_type="topic" if QUEUE_TYPE == "quorum" else "direct",
    task_default_routing_key=os.environ["CELERY_QUEUE"],
    broker_native_delayed_delivery_queue_type="quorum",
    worker_detect_quorum_queues=True,
    broker_transport_options={"confirm_publish": True},
    task_ignore_result=True,
)


@app.task(name="note")
def note(call: str) -> None:
    """Add a line with the call and the time."""
    with Path(os.environ["CELERY_RAN"]).open("a") as file:
        file.write(json.dumps([call, time.time()]) + "\n")
