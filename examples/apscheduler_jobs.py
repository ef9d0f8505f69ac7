"""Jobs that wait in APScheduler's table become messages, and are called when they are due.

Run it with `python examples/apscheduler_jobs.py`. With servers, only the URLs differ.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport


def remind(address: str, days: int = 3) -> None:
    """What was a job's function."""
    print(f"reminded {address} after {days} days")


JOBS: Final[dict[str, Callable[..., Any]]] = {"__main__:remind": remind}
"""What a message may call, by the names that APScheduler has kept."""


def main(url: str) -> None:
    """Schedule as before, migrate, and consume."""
    scheduler = BackgroundScheduler(jobstores={"default": SQLAlchemyJobStore(url)})
    scheduler.start(paused=True)
    soon = datetime.now(UTC) + timedelta(seconds=1)
    scheduler.add_job(remind, "date", run_date=soon, args=["ada@example.org"], kwargs={"days": 7}, id="ada")
    scheduler.add_job(remind, "date", run_date=soon + timedelta(days=3), args=["bob@example.org"], id="bob")
    scheduler.shutdown()

    ends = ["--from", f"apscheduler+{url}?destination=jobs", "--to", url, "--endpoint", "app"]
    command = [sys.executable, "-m", "delaystore.cli", "migrate", "run", *ends, "--yes"]
    subprocess.run(command, check=True, capture_output=True)

    queues = SqlQueueTransport(url)
    queues.declare("jobs")
    with DelayedDelivery("app", SqlDelayedMessageStore(url), queues) as delivery:
        with queues.receive("jobs", timeout=30) as (message,):
            call = json.loads(message.body)
            JOBS[call["func"]](*call["args"], **call["kwargs"])
        print("cancelled:", delivery.cancel("bob").value)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(f"sqlite:///{Path(directory) / 'app.db'}")
