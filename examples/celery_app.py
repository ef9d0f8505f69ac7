"""Celery's tasks wait in a store, and reach the worker when they are due.

Run it with `python examples/celery_app.py amqp://guest:guest@localhost`. It starts a worker, and dispatches itself; in
an installation of yours, `delaystore dispatch` does.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery
from sqlalchemy import create_engine

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.integrations.celery import DelayedTasks, tasks_in
from delaystore.transports import open_transport

FOLDER = Path(os.environ.get("SHOP_FOLDER") or tempfile.mkdtemp(prefix="shop-"))
BROKER = os.environ.get("SHOP_BROKER") or (sys.argv[1] if len(sys.argv) == 2 else "amqp://guest:guest@localhost")

app = Celery("shop", broker=BROKER, backend=f"file://{FOLDER}")
app.conf.broker_connection_retry_on_startup = True
delivery = DelayedDelivery("tasks", SqlDelayedMessageStore(f"sqlite:///{FOLDER / 'tasks.db'}"))
DelayedTasks(app, delivery, threshold=1)


@app.task(name="remind", bind=True)  # type: ignore[untyped-decorator]  # Celery has no types
def remind(self: Any, order: int) -> str:
    """Remind of an order; the first attempt fails."""
    if self.request.retries == 0:
        raise self.retry(countdown=2)
    return f"order {order}: reminded at attempt {self.request.retries + 1}"


@contextmanager
def working() -> Iterator[None]:
    """A worker of this module's app, in a process of its own."""
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", "solo", "--loglevel", "error"]
    variables = {"SHOP_FOLDER": str(FOLDER), "SHOP_BROKER": BROKER}
    worker = subprocess.Popen(command, env=os.environ | variables, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


def main() -> None:
    """Schedule, cancel, schedule in a transaction; and wait for what is left."""
    engine = create_engine(f"sqlite:///{FOLDER / 'tasks.db'}")
    dispatching = DelayedDelivery("tasks", SqlDelayedMessageStore(engine), open_transport(BROKER))
    with dispatching, working():
        first = remind.apply_async((1,), countdown=2)
        second = remind.apply_async((2,), countdown=3600)
        print("waiting:", delivery.count())
        second.revoke()
        print("order 2:", second.state)
        with engine.connect() as connection, connection.begin() as transaction, tasks_in(connection):
            remind.apply_async((3,), countdown=3600)
            transaction.rollback()
        print("waiting after the rollback:", delivery.count())
        print(first.get(timeout=60))
    delivery.close()
    engine.dispose()


if __name__ == "__main__":
    main()
