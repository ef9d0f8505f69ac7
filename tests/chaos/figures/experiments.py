"""One function for each fault: what is done, and what was measured."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from delaystore.message import DelayedMessage
from tests.chaos.figures.ground import CLASSIC, LED, QUORUM, Ground
from tests.chaos.figures.stream import Stream
from tests.faults.patience import wait_until

AFTER = 15.0
"""Seconds of stream after the end of a fault."""


@dataclass(frozen=True)
class Scale:
    """How long faults last, in seconds, and how many messages wait."""

    frozen: float = 75.0
    without_quorum: float = 300.0
    waiting: int = 100_000


QUICK: Final = Scale(frozen=40, without_quorum=20, waiting=5_000)
"""Shows that everything still runs."""


@dataclass(frozen=True)
class Figure:
    """What was measured: seconds, where they were measured, and what else is to be said."""

    seconds: float
    aim: str
    lost: int
    copies: int
    errors: int
    remark: str = ""


def kill_node(ground: Ground, _: Scale) -> Figure:
    """kill -9 of the node connected to."""
    with ground.streaming([QUORUM]) as (stream, process):
        node = ground.brokers.nodes[ground.node_of(process)]
        began = time.monotonic()
        node.kill()
        time.sleep(AFTER)
        stall = stream.stall(began)
        node.restore()
        return _figure(ground, stream, stall, "stall, under 3 s")


def freeze_node(ground: Ground, scale: Scale) -> Figure:
    """SIGSTOP of the node connected to."""
    with ground.streaming(LED) as (stream, process):
        connected = ground.node_of(process)
        node = ground.brokers.nodes[connected]
        began = time.monotonic()
        node.pause()
        time.sleep(scale.frozen)
        node.resume()
        time.sleep(AFTER)
        stalls = [stream.stall(began, queue=queue) for queue in LED]
        led = stalls.pop(connected)
        remark = f"frozen for {scale.frozen:g} s; a queue whose leader it was {led:.1f} s"
        return _figure(ground, stream, max(stalls), "stall, under 20 s", remark)


def lose_quorum(ground: Ground, scale: Scale) -> Figure:
    """Two nodes of three gone, and back."""
    with ground.streaming([QUORUM]) as (stream, _process):
        for node in ground.brokers.nodes[:2]:
            node.kill()
        time.sleep(scale.without_quorum)
        started = time.monotonic()
        ground.brokers.start()
        whole = time.monotonic()
        time.sleep(AFTER)
        figure = _figure(ground, stream, 0, "last message after the start of the nodes, under 65 s")
        taken = whole - started
        remark = f"lost for {scale.without_quorum:g} s; after {taken:.1f} s all nodes knew each other"
        return replace(figure, seconds=taken + stream.last_of_before(whole), remark=remark)


def restart_nodes(ground: Ground, _: Scale) -> Figure:
    """Rolling restart of all nodes, under load."""
    with ground.streaming([QUORUM, CLASSIC]) as (stream, _process):
        began = time.monotonic()
        for node in ground.brokers.nodes:
            node.stop()
            node.start()
            time.sleep(5)
        time.sleep(AFTER)
        classic = stream.stall(began, queue=CLASSIC)
        stall = stream.stall(began, queue=QUORUM)
        return _figure(ground, stream, stall, "stall, under 5 s", f"classic queue {classic:.1f} s: its node is away")


def promote(ground: Ground, _: Scale) -> Figure:
    """PostgreSQL: kill -9 of the primary and promotion of the standby."""
    databases = ground.databases
    with ground.streaming([QUORUM]) as (stream, _process):
        databases.primary.kill()
        time.sleep(3)
        databases.promote(databases.standbys[0])
        promoted = time.monotonic()
        time.sleep(AFTER)
        databases.restore()
        sent, arrived = stream.first_sent(promoted), stream.first_arrived(promoted)
        remark = f"first send after {sent:.1f} s, first delivery after {arrived:.1f} s"
        return _figure(ground, stream, max(sent, arrived), "from promotion, under 3 s", remark)


def restart_all(ground: Ground, scale: Scale) -> Figure:
    """Restart of everything, with messages waiting."""
    due = datetime.now(UTC) + timedelta(seconds=30 + scale.waiting / 2000)
    for first in range(0, scale.waiting, 1000):
        ground.delivery.send_many(
            [
                DelayedMessage(message_id=f"waiting-{n}", destination=QUORUM, due_time=due, body=b"x" * 200)
                for n in range(first, min(first + 1000, scale.waiting))
            ]
        )
    with ground.dispatcher() as process:
        process.await_ready()
        for server in (ground.brokers, ground.databases.primary):
            server.kill()
        process.kill()
        ground.brokers.start()
        ground.databases.restore()
    began = max(time.time(), due.timestamp())
    with ground.dispatcher() as process:
        wait_until(lambda: ground.delivery.count() == 0, "everything is delivered", 900, pause=1)
        taken = time.time() - began
    arrived = ground.taken(QUORUM)
    remark = f"{scale.waiting:,} waiting; all delivered so long after they were due and the dispatcher started"
    copies = arrived.total() - len(arrived)
    return Figure(taken, "0 lost", scale.waiting - len(arrived), copies, ground.errors(), remark)


EXPERIMENTS: Final[Mapping[str, Callable[[Ground, Scale], Figure]]] = {
    "kill-node": kill_node,
    "freeze-node": freeze_node,
    "restart-nodes": restart_nodes,
    "promote": promote,
    "lose-quorum": lose_quorum,
    "restart-all": restart_all,
}
"""In the order in which they are measured."""


def _figure(ground: Ground, stream: Stream, seconds: float, aim: str, remark: str = "") -> Figure:
    """When the stream has ended and everything has arrived."""
    stream.end()
    return Figure(seconds, aim, stream.missing, stream.copies, ground.errors(), remark)
