"""Messages published to an ingress arrive, in their time, whatever is killed: processes, the database, the broker."""

from collections.abc import Iterator, Sequence

import pytest

from tests.chaos import report
from tests.chaos.brokers import OneRabbitMQ
from tests.chaos.checker import check
from tests.chaos.databases import OneServer
from tests.chaos.program import Load
from tests.chaos.run import Plan, run
from tests.chaos.topology import Topology
from tests.faults.scale import scaled
from tests.servers import PostgreSQL, RabbitMQ

MESSAGES = scaled(2_000, 50_000)
ROUNDS = scaled(1, 18)
LOAD = Load(senders=scaled(2, 4), dispatchers=2, ingests=2, rate=60.0, longest=scaled(5.0, 60.0), linger=0.05)
Stroke = Sequence[tuple[str, str, float]]


def strokes() -> Iterator[Stroke]:
    """Each in turn, and some together."""
    for number in range(ROUNDS):
        one, other = ("1", "2") if number % 2 else ("2", "1")
        yield [("kill", f"ingest-{one}", 0.5)]
        yield [("kill", "database", 1)]
        yield [("kill", f"dispatcher-{one}", 0.5)]
        yield [("kill", "rabbitmq", 1)]
        yield [("kill", f"ingest-{other}", 1), ("kill", f"dispatcher-{other}", 0.5)]
        yield [("kill", "rabbitmq", 0), ("kill", "database", 2)] if number % 3 == 2 else [("kill", "ingest-1", 0)]


@pytest.mark.long
def test_whatever_is_killed_nothing_is_lost_or_early_and_duplicates_have_their_reasons(
    private_postgresql: PostgreSQL, private_rabbitmq: RabbitMQ
) -> None:
    database = OneServer(private_postgresql, left_running=True)
    broker = OneRabbitMQ(private_rabbitmq, left_running=True)
    topology = Topology("ingress", database, broker, through_ingress=True)
    findings = check(run(Plan(lambda: topology, load=LOAD, strokes=list(strokes()), messages=MESSAGES)))
    print(report.table("ingress", findings))  # noqa: T201 - a campaign's log tells its figures
    assert findings.good, report.violations(findings)
    assert findings.counts["acknowledged"] >= MESSAGES
    assert findings.counts["in error queue"] > 0
