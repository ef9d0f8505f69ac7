"""A Celery app whose periodic tasks come from schedules in the store, not from beat.

Run it with `python examples/celery_without_beat.py amqp://guest:guest@localhost`. It starts a worker, and dispatches
itself; in an installation of yours, `delaystore dispatch` does. No process of beat runs.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery
from celery.schedules import crontab

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.integrations.celery import DelayedTasks
from delaystore.transports import open_transport

FOLDER = Path(os.environ.get("CLOCK_FOLDER") or tempfile.mkdtemp(prefix="clock-"))
BROKER = os.environ.get("CLOCK_BROKER") or (sys.argv[1] if len(sys.argv) == 2 else "amqp://guest:guest@localhost")
RUNS = FOLDER / "runs"

app = Celery("clock", broker=BROKER)
app.conf.broker_connection_retry_on_startup = True
app.conf.timezone = "Europe/Berlin"
app.conf.beat_schedule = {
    "tick": {"task": "tick", "schedule": 1.0},
    "report": {"task": "tick", "schedule": crontab(hour=9, minute=0, day_of_week="mon-fri")},
}
delivery = DelayedDelivery("clock", SqlDelayedMessageStore(f"sqlite:///{FOLDER / 'tasks.db'}"))
tasks = DelayedTasks(app, delivery)


@app.task(name="tick", bind=True)  # type: ignore[untyped-decorator]  # Celery has no types
def tick(self: Any) -> None:
    """Note the id of the task."""
    with RUNS.open("a") as file:
        print(self.request.id, file=file)


@contextmanager
def working() -> Iterator[None]:
    """A worker of this module's app, in a process of its own."""
    module, options = "celery_without_beat", ["--pool", "solo", "--loglevel", "error"]
    variables = {"CLOCK_FOLDER": str(FOLDER), "CLOCK_BROKER": BROKER}
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", module, "worker", *options],
        env=os.environ | variables,
        cwd=Path(__file__).parent,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


def main() -> None:
    """Put the schedules, and wait until one of them has run three times."""
    with DelayedDelivery("clock", SqlDelayedMessageStore(f"sqlite:///{FOLDER / 'tasks.db'}"), open_transport(BROKER)):
        for name in tasks.put_beat_schedule().created:
            print("created:", name)
        with working():
            end = time.monotonic() + 60
            while not RUNS.exists() or len(RUNS.read_text().splitlines()) < 3:
                if time.monotonic() > end:
                    sys.exit("the task does not run")
                time.sleep(0.1)
            delivery.schedules.delete("celery/tick")
    runs = RUNS.read_text().splitlines()[:3]
    print("ids of tick:", len({each for each in runs if each.startswith("schedule/celery/tick/")}))
    delivery.close()


if __name__ == "__main__":
    main()
