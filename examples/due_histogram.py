"""How much is due in each hour of the next week? Ask Spark, and draw the answer.

Run it with `python examples/due_histogram.py due.png`, for a small store made up on the spot, or
`python examples/due_histogram.py due.png postgresql+psycopg://localhost/app sales` for one of yours.
It needs Java 17 and `pip install '.[spark,postgresql]' matplotlib`, in a clone of delaystore.
"""

import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from matplotlib import pyplot
from matplotlib.dates import DateFormatter, DayLocator
from pyspark.sql import SparkSession

from delaystore import DelayedMessage, TransactionMode
from delaystore.bulk.spark import register
from delaystore.stores import SqlDelayedMessageStore

HOURS = 7 * 24


def main(png: str, store: str | None = None, endpoint: str = "sales") -> None:
    """Draw the store's next week into the file `png`."""
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    with tempfile.TemporaryDirectory() as directory:
        counts = due_per_hour(store or made_up(directory, endpoint, start), endpoint, start)
    draw(counts, start, png)
    busiest = max(range(HOURS), key=counts.__getitem__)
    print(f"{sum(counts)} messages are due within the week")
    print(f"the busiest hour begins in {busiest} hours: {counts[busiest]} messages")


def due_per_hour(store: str, endpoint: str, start: datetime) -> list[int]:
    """How many messages are due in each hour from `start` on."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[*]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    register(spark)
    waiting = (
        spark.read.format("delaystore")
        .options(store=store, endpoint=endpoint, pushFilters=True)  # for this query, the database filters
        .schema("due_time timestamp")  # nothing else is read
        .load()
    )
    first = int(start.timestamp())
    week = waiting.where((waiting.due_time >= start) & (waiting.due_time < start + timedelta(hours=HOURS)))
    hours = week.selectExpr(f"(unix_seconds(due_time) - {first}) div 3600 AS hour").groupBy("hour").count()
    counts = [0] * HOURS
    for hour, count in hours.collect():
        counts[hour] = count
    spark.stop()
    return counts


def draw(counts: list[int], start: datetime, png: str) -> None:
    """A bar for each hour, a line and a date for each midnight (UTC)."""
    pyplot.switch_backend("agg")  # it needs no screen
    figure, axes = pyplot.subplots(figsize=(12, 4), layout="constrained")
    hours = [start + timedelta(hours=hour) for hour in range(HOURS)]
    axes.bar(hours, counts, width=timedelta(minutes=50), align="edge", color="steelblue")
    axes.xaxis.set_major_locator(DayLocator(tz=UTC))
    axes.xaxis.set_major_formatter(DateFormatter("%a %d %b", tz=UTC))
    axes.grid(axis="x", color="lightgray")
    axes.set_title("messages due per hour")
    figure.savefig(png)


def made_up(directory: str, endpoint: str, start: datetime) -> str:
    """The URL of a store with reminders at nine o'clock (UTC) of each day, and a trickle at other times."""
    url = f"sqlite:///{Path(directory) / 'app.db'}"
    store = SqlDelayedMessageStore(url)
    store.initialize(endpoint, TransactionMode.NONE)
    store.setup_infrastructure()
    instants = [start + timedelta(hours=hour) for hour in range(HOURS)]
    store.store_many(
        DelayedMessage(message_id=f"{instant:%d-%H}-{number}", destination="mail", due_time=instant, body=b"remind")
        for instant in instants
        for number in range(200 if instant.hour == 9 else 5)
    )
    store.close()
    return url


if __name__ == "__main__":
    main(*sys.argv[1:])
