"""A replay of the error queue that is killed, or loses its broker: nothing is lost, and little comes twice."""

import random
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from delaystore.operations import ErrorQueue
from delaystore.transports import RabbitMQTransport, Transport, open_transport
from tests.faults.patience import PATIENCE, wait_until
from tests.faults.scale import SOAK, scaled
from tests.integration.sql_stores import connected
from tests.integration.test_error_queue import batch, failed
from tests.long import long
from tests.preloaded.forked import ForkedModule
from tests.servers import RabbitMQ

COUNT = scaled(4_000, 20_000)
KILLS = scaled(3, 25)
BATCH = 200
SEED = 13


@pytest.fixture
def replay() -> Iterator["Replay"]:
    """Starts replays, each a process of its own; none is left at the end."""
    replays = Replay()
    yield replays
    replays.end()


class Replay:
    """`delaystore errors replay --all` in processes."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, url: str) -> subprocess.Popen[str]:
        process = ForkedModule(
            "delaystore.cli",
            ["errors", "replay", "--all", "--json"],
            {"DELAYSTORE_TRANSPORT": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate(timeout=PATIENCE)


def prepared(transport: Transport) -> list[str]:
    """Failed messages in the error queue; returns their ids."""
    transport.declare("billing")
    transport.declare_error_queue("error")
    messages = batch(COUNT)
    failed(transport, messages)
    return [message.message_id for message in messages]


def in_queue(transport: Transport, queue: str) -> list[str]:
    """The ids of all messages of a queue, which stay there."""
    found: list[str] = []
    with transport.open_queue(queue) as opened:
        while taken := opened.take(1000):
            found += [one.message.message_id for one in taken]
    return found


def kill_now_and_then(replay: Replay, url: str, transport: Transport) -> None:
    """Kill replays after some more messages have arrived, a random number, again and again."""
    chance = random.Random(SEED)
    for _ in range(KILLS):
        process = replay.start(url)
        reached = (transport.depth("billing") or 0) + chance.randrange(1, COUNT // KILLS)
        wait_until(
            lambda: process.poll() is not None or (transport.depth("billing") or 0) >= reached,  # noqa: B023 - at once
            "some messages are replayed",
        )
        process.kill()
        process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("queue_type", [long("classic"), "quorum"])
def test_a_killed_replay_loses_nothing_and_repeats_one_batch_at_most(
    replay: Replay, rabbitmq_url: str, queue_type: str
) -> None:
    transport = RabbitMQTransport(rabbitmq_url, queue_type=queue_type)
    ids = prepared(transport)
    kill_now_and_then(replay, rabbitmq_url, transport)
    settled(transport)
    arrived, left = in_queue(transport, "billing"), in_queue(transport, "error")
    assert left, "it was never killed half way"
    assert set(arrived) | set(left) == set(ids)
    finished(replay, rabbitmq_url)
    assert_once(in_queue(transport, "billing"), ids, repeated=KILLS * BATCH)
    assert transport.depth("error") == 0
    transport.close()


def test_a_killed_replay_between_sql_queues_repeats_nothing(replay: Replay, database_url: str) -> None:
    transport = open_transport(database_url)
    ids = prepared(transport)
    kill_now_and_then(replay, database_url, transport)
    arrived = in_queue(transport, "billing")
    assert 0 < len(arrived) < COUNT
    if database_url.startswith("sqlite") and not SOAK:
        end_leases(database_url)
    wait_until(lambda: finished_all(replay, database_url, transport), "leases of the killed have ended", pause=1)
    assert_once(in_queue(transport, "billing"), ids, repeated=0)
    transport.close()


def end_leases(url: str) -> None:
    """As if a minute had passed since the killed ones claimed what they have."""
    with connected(url) as connection:
        statement = "UPDATE error_queue SET claimed_until = :now WHERE claimed_by IS NOT NULL"
        ended = connection.execute(text(statement), {"now": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"})
        assert ended.rowcount > 0


@pytest.mark.long
def test_a_broker_that_is_restarted_ends_a_replay_and_loses_nothing(replay: Replay, private_rabbitmq: RabbitMQ) -> None:
    url = private_rabbitmq.create_vhost()
    with closing(RabbitMQTransport(url)) as transport:
        ids = prepared(transport)
        private_rabbitmq.sync_queues()
        process = replay.start(url)
        wait_until(lambda: (transport.depth("billing") or 0) > 0, "some messages are replayed")
        private_rabbitmq.kill()
        out, err = process.communicate(timeout=PATIENCE)
        private_rabbitmq.start()
        assert "Traceback" not in err
        assert process.returncode == 2, (out, err)
        assert "run it again" in err
        wait_until(lambda: transport.depth("error") is not None, "the queues are there again")
        settled(transport)
        wait_until(lambda: there(transport) == set(ids), "each is in one of the queues", pause=1)
        finished(replay, url)
        assert_once(in_queue(transport, "billing"), ids, repeated=2 * BATCH)


def there(transport: Transport) -> set[str]:
    """The ids of what is in the queues, as far as a broker tells that has just started."""
    return {*in_queue(transport, "billing"), *in_queue(transport, "error")}


def settled(transport: Transport) -> None:
    """Wait until the broker has taken back what killed processes had."""
    depth = -1

    def unchanged() -> bool:
        nonlocal depth
        before, depth = depth, transport.depth("error") or 0
        return before == depth

    wait_until(unchanged, "the error queue has again what was taken", pause=0.5)


def finished(replay: Replay, url: str) -> None:
    """Replay the rest."""
    process = replay.start(url)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, (out, err)


def finished_all(replay: Replay, url: str, transport: Transport) -> bool:
    """Replay the rest, without what killed processes still have."""
    finished(replay, url)
    return transport.depth("error") == 0


def assert_once(arrived: Sequence[str], ids: Sequence[str], *, repeated: int) -> None:
    """Each has arrived, and no more than so many twice."""
    counts = Counter(arrived)
    assert set(counts) == set(ids)
    assert sum(counts.values()) - len(ids) <= repeated


def test_the_bound_is_that_of_a_batch() -> None:
    from delaystore.operations.error_queue import BATCH as OURS

    assert OURS == BATCH
    assert ErrorQueue.replay.__doc__ is not None
    assert f"{BATCH} at most" in ErrorQueue.replay.__doc__
