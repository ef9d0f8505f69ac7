"""A campaign from a messy file to its last number: load, correct, cancel one customer, put a day off, pause, replay.

Run it with `python examples/campaign.py`, or with another number of reminders, as in `python examples/campaign.py
50000`. It needs `pip install '.[cli,parquet]'` in a clone of delaystore. docs/tutorials/campaign.md tells the same at
the command line.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from delaystore import DelayedDelivery, MessageFilter, SqlDelayedMessageStore
from delaystore.operations import ErrorFilter
from delaystore.transports import SqlQueueTransport

CUSTOMERS = ("acme", "bolt", "coral", "delta")
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "Asia/Kathmandu", "Europe/Lisbon")
SPRING = MessageFilter(load="spring")


def main(count: int) -> None:
    """Run the campaign with that many reminders, in a SQLite file."""
    with tempfile.TemporaryDirectory() as directory:
        folder, url = Path(directory), f"sqlite:///{Path(directory) / 'app.db'}"
        queues = SqlQueueTransport(url)
        queues.declare("reminders")
        with closing(DelayedDelivery("sales", SqlDelayedMessageStore(url), queues)) as delivery:
            delivery.setup_infrastructure()
            load_and_correct(folder, url, count)
            run(delivery, queues)


def load_and_correct(folder: Path, url: str, count: int) -> None:
    """Load the file; correct the rejected rows, and load them under another id."""
    file, rejects, corrected = folder / "reminders.csv", folder / "rejects", folder / "corrected.jsonl"
    file.write_text("\n".join(rows(count)) + "\n", encoding="utf-8-sig", newline="\r\n")
    send_file(url, file, "spring", "--rejects-dir", str(rejects))
    wrong = [json.loads(line) for path in rejects.rglob("*.jsonl") for line in path.read_text().splitlines()]
    right = [{**row, "due_time": "2030-03-08T09:00"} for row in wrong if "is twice" not in row["_reason"]]
    corrected.write_text("".join(json.dumps(row) + "\n" for row in right))
    send_file(url, corrected, "spring-corrected")


def rows(count: int) -> Iterator[str]:
    """A file as Excel writes it. Some rows have no readable time, some are there twice, some name a missing queue."""
    yield "message_id;due_time;zone;customer;destination;body"
    for n in range(count):
        due = "soon" if n % 250 == 17 else f"2030-03-0{4 + n % 5}T09:00"
        queue = "vip" if n % 20 == 1 else ""
        row = f"reminder-{n:05d};{due};{ZONES[n // 5 % 5]};{CUSTOMERS[n % 4]};{queue};Grüße! Your appointment {n}"
        yield from [row] * (2 if n % 250 == 40 else 1)


def send_file(url: str, file: Path, load_id: str, *more: str) -> None:
    """Load a file by the command line, with the due times spread over the recipients' working hours."""
    command = ["send", "reminders", "--file", str(file), "--load-id", load_id, "--store", url, "--endpoint", "sales"]
    columns = ["--zone-column", "zone", "--unknown-columns", "headers"]
    times = ["--spread", "4h", "--window", "mon-fri 09:00-18:00"]
    subprocess.run(
        [sys.executable, "-m", "delaystore.cli", *command, *columns, *times, *more], check=True, capture_output=True
    )


def run(delivery: DelayedDelivery, queues: SqlQueueTransport) -> None:
    """Change the campaign, deliver a part of it, and end it."""
    operations = delivery.operations.acting_as("ada")
    for load in reversed(operations.loads.list()):
        print(f"{load.load_id}: {load.stored} stored, {load.rejected} rejected")

    acme = MessageFilter(load="spring", headers={"customer": "acme"})
    print("cancelled for acme:", operations.cancel(acme).changed)

    thursday = datetime(2030, 3, 6, 23, tzinfo=UTC)  # midnight in Berlin
    day = MessageFilter(load="spring", since=thursday, until=thursday + timedelta(days=1))
    print("put off:", operations.reschedule(day, by=timedelta(days=7), time_zone="Europe/Berlin").changed)

    operations.loads.pause("spring")
    monday_and_tuesday = MessageFilter(load="spring", until=datetime(2030, 3, 6, tzinfo=UTC))
    due = operations.reschedule(monday_and_tuesday, delay=0).changed
    later = operations.loads.get("spring").waiting - due
    operations.reschedule(MessageFilter(load="spring-corrected"), delay=0)
    delivery.start()  # a dispatcher that runs already would apply the pause within a second
    wait_until(lambda: operations.loads.get("spring-corrected").waiting == 0)
    parked = MessageFilter(load="spring", paused=True)
    wait_until(lambda: operations.preview(parked).count == due)
    print("parked:", due)
    print("delivered during the pause:", operations.loads.get("spring").delivered)
    operations.limit_rate("reminders", 500)
    operations.loads.resume("spring")
    wait_until(lambda: operations.loads.get("spring").waiting == later)

    queues.declare("vip")
    print("replayed:", operations.errors.replay(ErrorFilter(destination="vip")).done)

    print("cancelled at the end:", operations.loads.cancel("spring").changed)
    load = operations.loads.get("spring")
    print(f"{load.stored} = {load.delivered} delivered + {load.cancelled} cancelled + {load.failed} failed before")


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for the dispatcher, which runs in a thread of the delivery."""
    while not condition():
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
