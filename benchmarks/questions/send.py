"""One `send`, against a bare psycopg insert and commit."""

from collections.abc import Callable
from datetime import timedelta

import psycopg
from psycopg import sql

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES, ENDPOINT, Bench
from benchmarks.results import Measurement, Question, Rounds, per_second
from benchmarks.sending import rate_of
from delaystore import DelayedDelivery
from delaystore.message import new_message_id
from delaystore.transports import open_transport

BODY = b"x" * BODY_BYTES
FAR, SOON = timedelta(days=3), timedelta(seconds=30)


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (100, 1) if quick else (200, 45)
    rounds = Rounds()
    with (
        arena.bench() as bench,
        psycopg.connect(bench.dsn) as committing,
        psycopg.connect(bench.dsn, autocommit=True) as autocommitting,
        DelayedDelivery(ENDPOINT, bench.store) as unchecked,
    ):
        transport = open_transport(bench.transport_url)
        delivery = DelayedDelivery(ENDPOINT, bench.store, transport)
        candidates: dict[str, Callable[[], object]] = {
            "insert and commit": _bare(bench, committing),
            "send": lambda: delivery.send(bench.queue, BODY, delay=FAR),
            "one autocommitted insert": _bare(bench, autocommitting),
            "send, due soon": lambda: delivery.send(bench.queue, BODY, delay=SOON),
            "send, without a transport": lambda: unchecked.send(bench.queue, BODY, delay=FAR),
        }
        for _ in range(rounds_wanted):
            for name, call in candidates.items():
                rounds.add(name, rate_of(call, count))
    return Measurement(
        figure=rounds.ratio("send", "insert and commit"),
        ours=per_second(rounds.median("send")),
        peer=per_second(rounds.median("insert and commit")),
        numbers=rounds.numbers,
        notes=[f"{name}: {per_second(rounds.median(name))}" for name in list(candidates)[2:]],
    )


def _bare(bench: Bench, connection: psycopg.Connection) -> Callable[[], object]:
    """A function that inserts one row, the way psycopg's documentation does, and commits."""
    statement = sql.SQL(
        "INSERT INTO {} (message_id, destination, due_time, next_attempt, failure_count, body) "
        "VALUES (%s, %s, %s, %s, %s, %s)"
    ).format(sql.Identifier(bench.table))

    def insert() -> None:
        due_time = bench.store.now() + FAR
        connection.execute(statement, (new_message_id(), bench.queue, due_time, due_time, 0, BODY))
        connection.commit()

    return insert


QUESTION = Question(
    name="send",
    title="one send, against a bare psycopg insert and commit",
    limit=0.7,
    measure=measure,
)
