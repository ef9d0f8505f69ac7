"""`send` on an event loop, against `send` from threads, 16 at once."""

from benchmarks.arena import Arena
from benchmarks.asynchronous import CONCURRENCY, Tasks, Threads, with_driver
from benchmarks.results import Measurement, Question, Rounds, per_second

DRIVERS = ("asyncpg", "psycopg")


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (10, 1) if quick else (50, 15)
    rounds = Rounds()
    with arena.bench() as bench:
        senders: dict[str, Threads | Tasks] = {"threads": Threads(bench.store_url)}
        for driver in DRIVERS:
            senders[driver] = Tasks(with_driver(bench.store_url, driver))
        try:
            for sender in senders.values():
                sender.rate(5)  # connections, statements
            for _ in range(rounds_wanted):
                for name, sender in senders.items():
                    rounds.add(name, sender.rate(count))
        finally:
            for sender in senders.values():
                sender.close()
    slower = min(DRIVERS, key=rounds.median)
    return Measurement(
        figure=rounds.ratio(slower, "threads"),
        ours=per_second(rounds.median(slower)),
        peer=per_second(rounds.median("threads")),
        numbers=rounds.numbers,
        notes=[f"{name}: {per_second(rounds.median(name))}" for name in DRIVERS]
        + [f"{CONCURRENCY} at once; the slower driver is judged"],
    )


QUESTION = Question(
    name="send-async",
    title=f"send on an event loop, against send from threads, {CONCURRENCY} at once",
    limit=0.9,
    measure=measure,
)
