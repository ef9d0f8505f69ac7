"""`store_many`, against a bare psycopg COPY of the same rows into the same table."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import psycopg

from benchmarks.arena import Arena
from benchmarks.bench import Bench
from benchmarks.results import Measurement, Question, Rounds, per_second

COLUMNS = {
    "message_id": "text",
    "destination": "text",
    "due_time": "timestamptz",
    "next_attempt": "timestamptz",
    "failure_count": "int4",
    "headers": "text",
    "properties": "text",
    "body": "bytea",
}


def measure(arena: Arena, quick: bool) -> Measurement:
    count, rounds_wanted = (5_000, 1) if quick else (100_000, 7)
    rounds = Rounds()
    with arena.bench() as bench, psycopg.connect(bench.dsn) as connection:
        messages = list(bench.messages(count, bench.store.now() + timedelta(days=1), timedelta(days=1)))
        rows = [
            (each.message_id, each.destination, each.due_time, each.due_time, 0, None, None, each.body)
            for each in messages
        ]
        candidates: dict[str, Callable[[], object]] = {
            "binary COPY": lambda: _copy(connection, bench, rows, binary=True),
            "store_many": lambda: bench.store.store_many(messages),
            "text COPY": lambda: _copy(connection, bench, rows, binary=False),
        }
        for _ in range(rounds_wanted):
            for name, call in candidates.items():
                bench.clear()
                began = time.perf_counter()
                call()
                rounds.add(name, count / (time.perf_counter() - began))
    fastest = max(("binary COPY", "text COPY"), key=rounds.median)
    return Measurement(
        figure=rounds.ratio("store_many", fastest),
        ours=per_second(rounds.median("store_many")),
        peer=per_second(rounds.median(fastest)),
        numbers=rounds.numbers,
        notes=[
            f"{count:,} rows; the peer is the faster of text COPY ({per_second(rounds.median('text COPY'))}) "
            f"and binary COPY ({per_second(rounds.median('binary COPY'))})"
        ],
    )


def _copy(connection: psycopg.Connection, bench: Bench, rows: Sequence[tuple[Any, ...]], *, binary: bool) -> None:
    form = "(FORMAT BINARY)" if binary else ""
    statement = f"COPY {bench.table} ({', '.join(COLUMNS)}) FROM STDIN {form}"
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        if binary:
            copy.set_types(list(COLUMNS.values()))
        for row in rows:
            copy.write_row(row)
    connection.commit()


QUESTION = Question(
    name="store-many",
    title="store_many of 100,000, against a bare psycopg COPY",
    limit=0.8,
    measure=measure,
)
