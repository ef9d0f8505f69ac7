"""Cancel of a load of a million among ten million others: how fast it is, and how late others are meanwhile."""

import time
from threading import Thread

import pyarrow as pa

from benchmarks.arena import Arena
from benchmarks.bench import ENDPOINT, Bench
from benchmarks.lateness import steady_lateness
from benchmarks.lateness_rounds import note, shown
from benchmarks.millions import millions
from benchmarks.programs import OURS
from benchmarks.results import Measurement, Question, Rounds
from benchmarks.spark import Row, random_rows
from delaystore.bulk.columns import STAGED
from delaystore.bulk.options import OnDuplicate, StoreOptions
from delaystore.bulk.staging import LoadKey, open_staging
from delaystore.delivery import DelayedDelivery

QUIET = "nothing else"
MEANWHILE = "meanwhile"
PER_SECOND = 500


def measure(arena: Arena, quick: bool) -> Measurement:
    count, seconds, wanted = (5_000, 3, 1) if quick else (1_000_000, 45, 2)
    rounds = Rounds()
    rows = list(random_rows(count, seed=3))
    with arena.filled_bench(millions(quick)) as bench:
        for number in range(wanted):
            load_id = f"campaign-{number}"
            _load(bench, load_id, rows)
            bench.settle()
            note(rounds, QUIET, steady_lateness(OURS, bench, PER_SECOND, seconds)[0])
            bench.clear_queue()
            cancel = Thread(target=_cancel, args=(bench, load_id, rounds))
            cancel.start()
            note(rounds, MEANWHILE, steady_lateness(OURS, bench, PER_SECOND, seconds)[0])
            cancel.join()
            bench.clear_queue()
            bench.settle()
    return Measurement(
        figure=rounds.ratio(f"{MEANWHILE} p99", f"{QUIET} p99"),
        ours=shown(rounds, MEANWHILE),
        peer=shown(rounds, QUIET),
        numbers=rounds.numbers,
        notes=[
            f"{PER_SECOND:,} a second for {seconds} s, {millions(quick):,} others waiting",
            f"cancel of {count:,}: {rounds.median('cancelled'):,.0f}/s, beside that traffic",
            f"`loads show` counted them in {rounds.median('counted'):.2f} s",
        ],
    )


def _load(bench: Bench, load_id: str, rows: list[Row]) -> None:
    """Stage and promote the rows, as a load without Spark does."""
    names = ("message_id", "destination", "due_time", "body")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    nothing = [None] * len(rows)
    values = {**columns, **{name: nothing for name in STAGED.names if name not in columns}}
    batch = pa.RecordBatch.from_arrays([pa.array(values[field.name], field.type) for field in STAGED], schema=STAGED)
    staging = open_staging(StoreOptions(store=bench.store_url, endpoint=ENDPOINT), 600)
    staging.begin(LoadKey(load_id))
    with staging.attempt() as sink:
        sink.write(batch)
        attempt = sink.finish()
    staging.promote([attempt], OnDuplicate.ERROR)


def _cancel(bench: Bench, load_id: str, rounds: Rounds) -> None:
    with DelayedDelivery(ENDPOINT, bench.store) as delivery:
        loads = delivery.operations.loads
        began = time.perf_counter()
        waiting = loads.get(load_id).waiting
        counted = time.perf_counter()
        changed = loads.cancel(load_id).changed
        if changed != waiting:
            raise RuntimeError(f"{changed} of {waiting} messages were cancelled")
        rounds.add("counted", counted - began)
        rounds.add("cancelled", changed / (time.perf_counter() - counted))


QUESTION = Question(
    name="cancel-load",
    title="p99 lateness while a load of 1,000,000 among 10,000,000 is cancelled",
    limit=1.5,
    measure=measure,
    at_most=True,
)
