"""`send` without a key, against the same into a table that knows no keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count as numbered

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, Bench
from benchmarks.results import Measurement, Question, Rounds, per_second
from benchmarks.sending import rate_of
from delaystore import DelayedDelivery, SqlDelayedMessageStore

BODY = b"x" * BODY_BYTES
FAR = timedelta(days=3)
WITHOUT, BEFORE = "send", "send, without the columns of keys"


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (100, 1) if quick else (200, 45)
    rounds, keys = Rounds(), numbered()
    with arena.bench() as bench, _delivery(bench, "keyed") as now, _delivery(bench, "former") as before:
        bench.database.execute("ALTER TABLE former_delayed DROP COLUMN message_key, DROP COLUMN first_sent")

        def fresh_key() -> None:
            now.send(bench.queue, BODY, delay=FAR, key=str(next(keys)))

        def same_key() -> None:
            now.send(bench.queue, BODY, delay=FAR, key="the same", on_key="replace")

        candidates = {
            BEFORE: lambda: before.send(bench.queue, BODY, delay=FAR),
            WITHOUT: lambda: now.send(bench.queue, BODY, delay=FAR),
            "send, with a fresh key": fresh_key,
            "send, replacing": same_key,
        }
        for number in range(rounds_wanted):
            for name, call in list(candidates.items())[:: 1 if number % 2 else -1]:
                rounds.add(name, rate_of(call, count))
    return Measurement(
        figure=rounds.ratio(WITHOUT, BEFORE),
        ours=per_second(rounds.median(WITHOUT)),
        peer=per_second(rounds.median(BEFORE)),
        numbers=rounds.numbers,
        notes=[f"{name}: {per_second(rounds.median(name))}" for name in list(candidates)[2:]],
    )


@contextmanager
def _delivery(bench: Bench, endpoint: str) -> Iterator[DelayedDelivery]:
    with DelayedDelivery(endpoint, SqlDelayedMessageStore(bench.store_url)) as delivery:
        yield delivery


QUESTION = Question(
    name="send-keys",
    title="one send without a key, against a table without key columns",
    limit=0.97,
    measure=measure,
)
