"""The web page's first bytes with many messages waiting, however far in and whatever is asked for."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import environ
from statistics import quantiles
from typing import Final
from urllib.parse import urlencode

import httpx
from psycopg import sql

from benchmarks.arena import Arena
from benchmarks.bench import Bench
from benchmarks.results import Rounds
from delaystore.message import Position

MILLION: Final = 1_000_000
_WARM_UP: Final = 5


def first_bytes(arena: Arena, quick: bool) -> tuple[Rounds, int]:
    """Milliseconds to the first byte, `PAGE p50` and `PAGE p99`, and how many messages wait."""
    waiting, count = (100_000, 20) if quick else (MILLION, 200)
    rounds = Rounds()
    with arena.filled_bench(waiting) as bench, _page(bench) as client:
        for name, addresses in _asked(bench, count + _WARM_UP).items():
            times = [_first_byte(client, address) for address in addresses][_WARM_UP:]
            cuts = quantiles(times, n=100, method="inclusive")
            rounds.add(f"{name} p50", cuts[49] * 1000)
            rounds.add(f"{name} p99", cuts[98] * 1000)
    return rounds, waiting


def _asked(bench: Bench, count: int) -> Mapping[str, Sequence[str]]:
    """The addresses of each kind of page, no two alike."""
    places = _places(bench, count)

    def messages(**query: str) -> Sequence[str]:
        return [f"/messages?{urlencode({**query, 'after': str(place)})}" for place in places]

    return {
        "first page": ["/messages"] * count,
        "deep inside": messages(),
        "of a destination": messages(destination=bench.queue),
        "of a header that nothing has": messages(header="colour=red"),
        "failing": messages(failing="yes"),
        "of an hour": [f"/messages?{urlencode({'since': place.next_attempt.isoformat()})}" for place in places],
        "one message": [f"/message?{urlencode({'id': place.message_id})}" for place in places],
        "overview": ["/"] * count,
    }


def _places(bench: Bench, count: int) -> Sequence[Position]:
    query = sql.SQL("SELECT next_attempt, message_id FROM {} TABLESAMPLE SYSTEM (5) ORDER BY random() LIMIT {}")
    return [Position(*row) for row in bench.database.execute(query.format(sql.Identifier(bench.table), count))]


def _first_byte(client: httpx.Client, address: str) -> float:
    began = time.perf_counter()
    with client.stream("GET", address) as answer:
        took = time.perf_counter() - began
        answer.read()
    if answer.status_code != httpx.codes.OK:
        raise RuntimeError(f"{address} answers {answer.status_code}: {answer.text[-500:]}")
    return took


@contextmanager
def _page(bench: Bench) -> Iterator[httpx.Client]:
    command = [sys.executable, "-m", "delaystore.cli", "web", "--port", "0"]
    process = subprocess.Popen(command, env={**environ, **bench.environment}, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://\S+/", line)
        if found is None:
            raise RuntimeError(line + process.stderr.read())
        with httpx.Client(base_url=found.group(), timeout=60, trust_env=False) as client:
            yield client
    finally:
        process.terminate()
        process.communicate()
