"""Measures how long deliveries stand still in an outage: `python -m tests.chaos.figures [NAME...]`.

A steady stream of messages, a fault, and the longest time in which nothing was delivered, as the observer of an embedded
dispatcher sees it. The queues are emptied at the end, and what arrived is compared with what was sent.
"""

import argparse
import logging
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from typing_extensions import override

from delaystore import DelayedDelivery, RabbitMQTransport, SqlDelayedMessageStore
from delaystore.dispatcher import DispatchObserver, PassReport
from delaystore.errors import DelaystoreError, DuplicateMessageError
from delaystore.message import DelayedMessage
from tests.servers import PostgreSQL
from tests.servers.rabbitmq_cluster import RabbitMQCluster, RabbitMQNode

RATE: Final = 50.0
"""Messages a second."""
SETTLE: Final = 180.0
"""Seconds after a fault in which everything must have been delivered."""
STEADY: Final = 5.0
"""Seconds of deliveries before and after a fault."""
WAITING: Final = 100_000
QUORUM, CLASSIC, ERRORS = "quorum", "classic", "error"
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
        """The longest time without a delivery from `since` on, in seconds."""
        with self._lock:
            inside = [since, *(at for at in self._times.get(destination, []) if at >= since)]
        return max((later - earlier for earlier, later in zip(inside, inside[1:], strict=False)), default=float("inf"))

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
            DelayedMessage(message_id=one, destination=QUORUM, due_time=due_time, body=b"x") for one in ids
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


@contextmanager
def cluster_stream(*, classic_home: int = 1, leader: int = 1) -> Iterator[tuple[RabbitMQCluster, Stream, Connected]]:
    """A stream through a cluster whose quorum queue is led by the node of index `leader`."""
    connected, logger = Connected(), logging.getLogger("delaystore")
    with ExitStack() as stack:
        stack.callback(logger.removeHandler, connected)
        logger.addHandler(connected)
        logger.setLevel(logging.INFO)
        postgresql = stack.enter_context(PostgreSQL())
        cluster = stack.enter_context(RabbitMQCluster(partition_handling="pause_minority"))
        cluster.declare_quorum_queue(cluster.url, QUORUM, leader)
        cluster.declare_quorum_queue(cluster.url, ERRORS, leader)
        cluster.declare_classic_queue(cluster.url, CLASSIC, classic_home)
        cluster.sync_queues()
        stream = Stream(postgresql.create_database(), cluster.url_of_all(), (QUORUM, CLASSIC))
        yield cluster, stream, connected


def node_of(cluster: RabbitMQCluster, connected: Connected) -> RabbitMQNode:
    """The node that the dispatcher is connected to."""
    return next(node for node in cluster.nodes if node.port == connected.port)


def arrived(cluster: RabbitMQCluster) -> Counter[str]:
    """What is in the queues, taken out."""
    transport = RabbitMQTransport(cluster.url_of_all())
    found: Counter[str] = Counter()
    try:
        for queue in (QUORUM, CLASSIC, ERRORS):
            while True:
                with transport.receive(queue, limit=1000, timeout=0.5) as messages:
                    if not messages:
                        break
                    found.update(f"{queue}:{message.message_id}" for message in messages)
    finally:
        transport.close()
    return found


def killed() -> Mapping[str, object]:
    """kill -9 of the node connected to, three hosts given."""
    with cluster_stream() as (cluster, stream, connected):
        with stream.flowing():
            node = node_of(cluster, connected)
            since = time.monotonic()
            node.kill()
            time.sleep(10)
            result = {"stall": stream.deliveries.stall(QUORUM, since)}
            node.start()
        return result | check(cluster, stream)


def frozen() -> Mapping[str, object]:
    """SIGSTOP of the node connected to for 75 s."""
    with cluster_stream() as (cluster, stream, connected):
        with stream.flowing():
            node = node_of(cluster, connected)
            since = time.monotonic()
            node.pause()
            time.sleep(75)
            node.resume()
            time.sleep(15)
            result = {"stall": stream.deliveries.stall(QUORUM, since)}
        cluster.restore()
        return result | check(cluster, stream)


def quorum_lost(seconds: float = 300) -> Mapping[str, object]:
    """Two of three nodes killed for five minutes, then back."""
    with cluster_stream() as (cluster, stream, _):
        with stream.flowing():
            for node in cluster.nodes[1:]:
                node.kill()
            time.sleep(seconds)
            cluster.start()
            back = time.monotonic()
        return {"last after recovery": stream.deliveries.last(QUORUM) - back} | check(cluster, stream)


def rolling_restart() -> Mapping[str, object]:
    """Each of the three nodes stopped cleanly and started again, one after the other."""
    with cluster_stream() as (cluster, stream, _):
        with stream.flowing():
            since = time.monotonic()
            for node in cluster.nodes:
                node.stop()
                node.start()
                time.sleep(STEADY)
            result = {"stall": stream.deliveries.stall(QUORUM, since)}
        return result | check(cluster, stream)


def everything() -> Mapping[str, object]:
    """Database, brokers and dispatcher killed and started again, 100,000 messages waiting."""
    with PostgreSQL() as postgresql, RabbitMQCluster(partition_handling="pause_minority") as cluster:
        for queue in (QUORUM, ERRORS):
            cluster.declare_quorum_queue(cluster.url, queue)
        cluster.declare_classic_queue(cluster.url, CLASSIC)
        cluster.sync_queues()
        stream = Stream(postgresql.create_database(), cluster.url_of_all(), (QUORUM, CLASSIC))
        stream.store_many(WAITING, due_in=60)
        with stream.flowing():
            cluster.kill()
            postgresql.kill()
            postgresql.start()
            cluster.start()
        return check(cluster, stream)


def check(cluster: RabbitMQCluster, stream: Stream) -> Mapping[str, object]:
    """What was lost, came twice, or went to the error queue."""
    found = arrived(cluster)
    errors = {one.partition(":")[2] for one in found if one.startswith(f"{ERRORS}:")}
    times: Counter[str] = Counter()
    for one, count in found.items():
        if not one.startswith(f"{ERRORS}:"):
            times[one.partition(":")[2]] += count
    return {
        "sent": len(stream.sent),
        "lost": len(stream.sent - set(times) - errors),
        "duplicated": sum(count - 1 for count in times.values()),
        "error queue": len(errors),
    }


FIGURES: Final[Mapping[str, Callable[[], Mapping[str, object]]]] = {
    "killed": killed,
    "frozen": frozen,
    "quorum-lost": quorum_lost,
    "rolling-restart": rolling_restart,
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


if __name__ == "__main__":
    sys.exit(main())
