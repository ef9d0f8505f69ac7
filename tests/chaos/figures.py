"""Measures how long deliveries stand still in an outage: `python -m tests.chaos.figures [NAME...]`.

A steady stream of messages, a fault, and the longest time in which nothing was delivered to a queue, as the observer of
an embedded dispatcher sees it. The queues are emptied at the end, and what arrived is compared with what was sent.
"""

import argparse
import itertools
import logging
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from typing_extensions import override

from delaystore import DelayedDelivery, RabbitMQTransport, SqlDelayedMessageStore
from delaystore.dispatcher import DispatchObserver, PassReport
from delaystore.errors import DelaystoreError, DuplicateMessageError
from delaystore.message import DelayedMessage
from tests.servers import PostgreSQL, RabbitMQ
from tests.servers.postgresql_replication import PostgreSQLReplication
from tests.servers.rabbitmq_cluster import RabbitMQCluster

RATE: Final = 50.0
"""Messages a second."""
SETTLE: Final = 180.0
"""Seconds after a fault in which everything must have been delivered."""
STEADY: Final = 5.0
"""Seconds of deliveries before and after a fault."""
WAITING: Final = 100_000
QUORUM: Final = ("quorum.0", "quorum.1", "quorum.2")
"""Each is led by the node of that index."""
CLASSIC: Final = "classic"
ERRORS: Final = "error"
_CONNECTED: Final = re.compile(r"connected to RabbitMQ at \S+:(\d+)")


class Deliveries(DispatchObserver):
    """When something was delivered to each destination, on the monotonic clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: dict[str, list[float]] = {}

    @override
    def pass_ended(self, report: PassReport) -> None:
        now = time.monotonic()
        with self._lock:
            for destination, counts in report.by_destination.items():
                if counts.delivered:
                    self._times.setdefault(destination, []).append(now)

    def stall(self, destination: str, since: float) -> float:
        """The longest time without a delivery from `since` until now, in seconds."""
        with self._lock:
            inside = [since, *(at for at in self._times.get(destination, []) if at >= since), time.monotonic()]
        return max(later - earlier for earlier, later in itertools.pairwise(inside))

    def first_after(self, instant: float) -> float:
        """Seconds from `instant` to the next delivery."""
        with self._lock:
            later = [at for times in self._times.values() for at in times if at >= instant]
        return min(later, default=float("inf")) - instant

    def last(self, destination: str) -> float:
        """When the last message was delivered there."""
        with self._lock:
            return self._times[destination][-1]


class Connected(logging.Handler):
    """The port of the node that the dispatcher is connected to, as the log has it."""

    port: int | None = None

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if found := _CONNECTED.search(record.getMessage()):
            self.port = int(found[1])


class Stream:
    """Messages due at once, sent at a steady rate with ids of their own, again until they are acknowledged."""

    def __init__(self, store_url: str, transport_url: str, destinations: tuple[str, ...]) -> None:
        self.deliveries = Deliveries()
        self.sent: set[str] = set()
        self.acknowledged: list[float] = []
        self._destinations = destinations
        self._store = SqlDelayedMessageStore(store_url)
        self._delivery = DelayedDelivery(
            "figures", self._store, RabbitMQTransport(transport_url), observer=self.deliveries
        )
        self._ended = threading.Event()
        self._sender = threading.Thread(target=self._send, name="stream")

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Send and dispatch while the block runs, and then until everything is delivered."""
        with self._delivery:
            self._sender.start()
            try:
                time.sleep(STEADY)
                yield
                time.sleep(STEADY)
            finally:
                self._ended.set()
                self._sender.join()
            self._drain()

    def store_many(self, count: int, due_in: float) -> None:
        """Have `count` more messages wait, due in so many seconds."""
        self._delivery.count()
        due = self._store.now()
        ids = [f"waiting-{number}" for number in range(count)]
        due_time = due.fromtimestamp(due.timestamp() + due_in, tz=due.tzinfo)
        self._delivery.send_many(
            DelayedMessage(message_id=one, destination=QUORUM[0], due_time=due_time, body=b"x") for one in ids
        )
        self.sent.update(ids)

    def _send(self) -> None:
        number = 0
        while not self._ended.wait(1 / RATE):
            number += 1
            one = f"{self._destinations[number % len(self._destinations)]}-{number}"
            while not self._sent(one):
                time.sleep(0.1)

    def _sent(self, message_id: str) -> bool:
        try:
            self._delivery.send(message_id.partition("-")[0], b"x", delay=0, message_id=message_id)
        except DuplicateMessageError:
            pass  # an attempt whose answer was lost
        except DelaystoreError:
            return False
        self.sent.add(message_id)
        self.acknowledged.append(time.monotonic())
        return True

    def _drain(self) -> None:
        deadline = time.monotonic() + SETTLE
        while self._store.count() and time.monotonic() < deadline:
            time.sleep(0.2)


class Bench:
    """A cluster, a database, and a stream from one to the other."""

    def __init__(self, postgresql: PostgreSQL, cluster: RabbitMQCluster, connected: Connected) -> None:
        self.postgresql = postgresql
        self.cluster = cluster
        self._connected = connected
        for index, queue in enumerate(QUORUM):
            cluster.declare_quorum_queue(cluster.url, queue, index)
        cluster.declare_quorum_queue(cluster.url, ERRORS, 2)
        cluster.declare_classic_queue(cluster.url, CLASSIC, 1)
        cluster.sync_queues()
        self.stream = Stream(postgresql.create_database(), cluster.url_of_all(), (*QUORUM, CLASSIC))

    @property
    def node(self) -> int:
        """The index of the node that the dispatcher is connected to."""
        return next(index for index, node in enumerate(self.cluster.nodes) if node.port == self._connected.port)

    def stalls(self, since: float, node: int) -> Mapping[str, object]:
        """The longest stall of the quorum queues that `node` does not lead, and of the one it leads."""
        led = self.stream.deliveries.stall(QUORUM[node], since)
        others = [self.stream.deliveries.stall(queue, since) for queue in QUORUM if queue != QUORUM[node]]
        return {"stall": max(others), "of the queue it led": led}


@contextmanager
def bench() -> Iterator[Bench]:
    """Servers, running."""
    connected, logger = Connected(), logging.getLogger("delaystore")
    with ExitStack() as stack:
        stack.callback(logger.removeHandler, connected)
        logger.addHandler(connected)
        logger.setLevel(logging.INFO)
        postgresql = stack.enter_context(PostgreSQL())
        cluster = stack.enter_context(RabbitMQCluster(partition_handling="pause_minority"))
        yield Bench(postgresql, cluster, connected)


def killed() -> Mapping[str, object]:
    """kill -9 of the node connected to, three hosts given."""
    with bench() as on:
        with on.stream.flowing():
            node, since = on.node, time.monotonic()
            on.cluster.nodes[node].kill()
            time.sleep(20)
            result = on.stalls(since, node)
            on.cluster.nodes[node].start()
        return {**result, **check(on)}


def frozen() -> Mapping[str, object]:
    """SIGSTOP of the node connected to for 75 s."""
    with bench() as on:
        with on.stream.flowing():
            node, since = on.node, time.monotonic()
            on.cluster.nodes[node].pause()
            time.sleep(75)
            on.cluster.nodes[node].resume()
            time.sleep(20)
            result = on.stalls(since, node)
            on.cluster.restore()
        return {**result, **check(on)}


def quorum_lost(seconds: float = 300) -> Mapping[str, object]:
    """Two of three nodes killed for five minutes, then back."""
    with bench() as on:
        with on.stream.flowing():
            for node in on.cluster.nodes[1:]:
                node.kill()
            time.sleep(seconds)
            on.cluster.start()
            back = time.monotonic()
        last = max(on.stream.deliveries.last(queue) for queue in QUORUM)
        return {"last after recovery": last - back, **check(on)}


def rolling_restart() -> Mapping[str, object]:
    """Each of the three nodes stopped cleanly and started again, one after the other."""
    with bench() as on:
        with on.stream.flowing():
            since = time.monotonic()
            for node in on.cluster.nodes:
                node.stop()
                node.start()
                time.sleep(STEADY)
            stall = max(on.stream.deliveries.stall(queue, since) for queue in QUORUM)
            classic = on.stream.deliveries.stall(CLASSIC, since)
        return {"stall": stall, "of a classic queue": classic, **check(on)}


def everything() -> Mapping[str, object]:
    """Database and brokers killed and started again, 100,000 messages waiting."""
    with bench() as on:
        on.stream.store_many(WAITING, due_in=90)
        with on.stream.flowing():
            on.cluster.kill()
            on.postgresql.kill()
            on.postgresql.start()
            on.cluster.start()
        return check(on)


def arrived(transport: RabbitMQTransport, queues: Sequence[str]) -> Counter[tuple[str, str]]:
    """The queues and ids of what is in `queues`, taken out."""
    found: Counter[tuple[str, str]] = Counter()
    for queue in queues:
        while True:
            with transport.receive(queue, limit=1000, timeout=0.5) as messages:
                if not messages:
                    break
                found.update((queue, message.message_id) for message in messages)
    return found


def promoted() -> Mapping[str, object]:
    """kill -9 of PostgreSQL's primary, and promotion of its synchronous standby."""
    with ExitStack() as stack:
        replication = stack.enter_context(PostgreSQLReplication(standbys=2))
        rabbitmq = stack.enter_context(RabbitMQ(management=True))
        transport = RabbitMQTransport(rabbitmq.url)
        for queue in (CLASSIC, ERRORS):
            transport.declare(queue)
        url = replication.url_of_all(replication.primary.create_database())
        stream = Stream(url, rabbitmq.url, (CLASSIC,))
        with stream.flowing():
            replication.promote(replication.standbys[0])
            done = time.monotonic()
            time.sleep(15)
            sent = min((at for at in stream.acknowledged if at >= done), default=float("inf")) - done
            delivered = stream.deliveries.first_after(done)
        found = arrived(transport, (CLASSIC, ERRORS))
        transport.close()
        return {"first send": sent, "first delivery": delivered, **compared(stream, found)}


def check(on: Bench) -> Mapping[str, object]:
    """What was lost, came twice, or went to the error queue."""
    on.cluster.restore()
    transport = RabbitMQTransport(on.cluster.url_of_all())
    found = arrived(transport, (*QUORUM, CLASSIC, ERRORS))
    transport.close()
    return compared(on.stream, found)


def compared(stream: Stream, found: Counter[tuple[str, str]]) -> Mapping[str, object]:
    """What was sent, against what arrived."""
    failed = {message_id for queue, message_id in found if queue == ERRORS}
    times = Counter({message_id: count for (queue, message_id), count in found.items() if queue != ERRORS})
    return {
        "sent": len(stream.sent),
        "lost": len(stream.sent - set(times) - failed),
        "duplicated": sum(count - 1 for count in times.values()),
        "error queue": len(failed),
    }


FIGURES: Final[Mapping[str, Callable[[], Mapping[str, object]]]] = {
    "killed": killed,
    "frozen": frozen,
    "quorum-lost": quorum_lost,
    "rolling-restart": rolling_restart,
    "promoted": promoted,
    "everything": everything,
}


def main() -> int:
    """The exit code: 1 if something was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.figures", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*FIGURES, []], metavar="NAME", help=", ".join(FIGURES))
    lost = False
    for name in parser.parse_args().names or FIGURES:
        found = FIGURES[name]()
        lost |= bool(found["lost"])
        shown = ", ".join(
            f"{what} {value:.1f} s" if isinstance(value, float) else f"{what} {value}" for what, value in found.items()
        )
        print(f"{name}: {shown}", flush=True)  # noqa: T201 - a command
    return int(lost)


def _shown(value: object) -> str:
    return f"{value:.1f} s" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
