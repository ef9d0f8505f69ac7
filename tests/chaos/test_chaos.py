"""A short form of `make chaos`: some faults of each kind, on one server each and on SQLite."""

from collections.abc import Sequence

import pytest

from tests.chaos import report
from tests.chaos.brokers import OneRabbitMQ
from tests.chaos.checker import check
from tests.chaos.databases import OneServer
from tests.chaos.findings import Findings
from tests.chaos.program import Load
from tests.chaos.run import Plan, run
from tests.chaos.topologies import TOPOLOGIES
from tests.chaos.topology import Topology
from tests.servers import PostgreSQL, RabbitMQ

LOAD = Load(dispatchers=2, shortest=0, longest=3, lease=1)
Strokes = Sequence[Sequence[tuple[str, str, float]]]


def assert_good(findings: Findings) -> None:
    """No violation, and something was sent, cancelled and rescheduled. Prints the table."""
    print(report.table("", findings))  # noqa: T201 - what a failed run has done is wanted
    assert findings.good, report.violations(findings)
    assert all(findings.counts[name] for name in ("delivered", "cancelled", "rescheduled")), findings.counts


@pytest.mark.long
def test_faults_of_one_postgresql_and_one_rabbitmq_lose_nothing(
    private_postgresql: PostgreSQL, private_rabbitmq: RabbitMQ
) -> None:
    strokes: Strokes = [
        [("kill", "database", 0.5)],
        [("pause", "rabbitmq", 3), ("kill", "dispatcher-1", 0.2)],
        [("kill", "sender-1", 0.2), ("pause", "dispatcher-2", 2), ("pause", "database", 1)],
        [("kill", "rabbitmq", 0)],
    ]
    database = OneServer(private_postgresql, left_running=True)
    broker = OneRabbitMQ(private_rabbitmq, left_running=True)
    plan = Plan(lambda: Topology("single", database, broker), load=LOAD, strokes=strokes)
    assert_good(check(run(plan)))


@pytest.mark.long
def test_on_sqlite_dispatchers_that_die_or_outlive_their_lease_neither_lose_nor_repeat_a_message() -> None:
    strokes: Strokes = [
        [("kill", "dispatcher-1", 0.2)],
        [("pause", "dispatcher-2", 2.5)],
        [("pause", "dispatcher-1", 2), ("kill", "sender-1", 0.2)],
    ]
    assert_good(check(run(Plan(TOPOLOGIES["sqlite"], load=LOAD, strokes=strokes))))
