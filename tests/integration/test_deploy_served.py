"""The dashboard and the rules of deploy/, against what a real dispatcher serves, and a real Prometheus."""

import re
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.dispatching import wait_until
from tests.ingress.ground import LONG, Ground
from tests.integration.cli import PATIENCE, started
from tests.integration.test_deploy import DASHBOARD, RULES, metrics_in, panels, queries_of
from tests.servers import PostgreSQLDatabases, Prometheus, RabbitMQVhosts, ServerMissingError

ONLY_WHERE_ASKED = {"Delivered by destination", "Sent to the store", "Duration of send"}
"""Panels that a dispatcher without `--metrics-destinations`, and one that sends nothing, leaves empty."""


@dataclass(frozen=True)
class Served:
    """A dispatcher with a past, and what it serves."""

    address: str
    names: set[str]
    """Of samples."""
    families: set[str]


@pytest.fixture(scope="module")
def served(postgresql: PostgreSQLDatabases, rabbitmq: RabbitMQVhosts) -> Iterator[Served]:
    """A dispatcher that has delivered a message and moved another to the error queue."""
    environment = {
        "DELAYSTORE_STORE": postgresql.create_database(),
        "DELAYSTORE_TRANSPORT": rabbitmq.create_vhost(),
        "DELAYSTORE_ENDPOINT": "sales",
    }
    with dispatching(environment) as url:
        for destination in ("billing", "no-such-queue"):
            run(["send", destination, "hello", "--delay", "0s"], environment)
        wait_until(
            lambda: {b'outcome="delivered"', b'outcome="moved_to_error_queue"'} <= nonzero(read(url)), "messages"
        )
        wait_until(lambda: b"\ndelaystore_error_queue_depth{" in read(url), "the depth of the error queue")
        text = read(url).decode()
        families = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
        text += ingress_metrics(environment)
        samples = re.findall(r"^([a-z_]+)[{ ]", text, re.MULTILINE)
        yield Served(url.removeprefix("http://").removesuffix("/metrics"), set(samples), set(families))
    postgresql.drop_database(environment["DELAYSTORE_STORE"])
    rabbitmq.delete_vhost(environment["DELAYSTORE_TRANSPORT"])


def ingress_metrics(environment: dict[str, str]) -> str:
    """What `delaystore ingress run` serves that has stored one message and rejected another."""
    broker = environment["DELAYSTORE_TRANSPORT"]
    run(["ingress", "create", "orders", "--type", "topic", "--broker", broker], environment)
    with serving(["ingress", "run", "orders", "--metrics", "127.0.0.1:0"], environment) as url:
        with Ground(broker, declare=False) as ground:
            ground.publish(b"pay", delay=LONG)
            ground.publish(b"bad", delay="soon")
        wait_until(
            lambda: len(re.findall(rb"^delaystore_ingress_messages_total.* 1.0$", read(url), re.MULTILINE)) == 2, "it"
        )
        text = read(url).decode()
        assert re.search(r"^delaystore_ingress_consuming{.*} 1.0$", text, re.MULTILINE)
        return text


@contextmanager
def dispatching(environment: dict[str, str]) -> Iterator[str]:
    """Where `delaystore dispatch` serves metrics while the block runs."""
    run(["setup", "--queue", "billing"], environment)
    with serving(["dispatch", "--metrics", "127.0.0.1:0"], environment) as url:
        yield url


@contextmanager
def serving(arguments: list[str], environment: dict[str, str]) -> Iterator[str]:
    """Where a command serves metrics while the block runs."""
    process = started(arguments, environment)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving metrics at "), line + process.stderr.read()
        yield line.removeprefix("serving metrics at ").strip()
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        assert "Traceback" not in said
    finally:
        process.kill()
        process.communicate()


def run(arguments: list[str], environment: dict[str, str]) -> None:
    process = started(arguments, environment)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        content: bytes = answer.read()
    return content


def nonzero(text: bytes) -> set[bytes]:
    """The outcomes with a count."""
    found = re.findall(rb'^delaystore_messages_total\{.*(outcome="\w+").*\} [1-9]', text, re.MULTILINE)
    return set(found)


@pytest.mark.long
def test_every_metric_of_the_dashboard_is_served(served: Served) -> None:
    for panel in panels():
        for query in queries_of(panel):
            assert metrics_in(query), query
            assert metrics_in(query) <= served.names, panel["title"]
    (variable,) = (each for each in DASHBOARD["templating"]["list"] if each["name"] == "endpoint")
    assert metrics_in(variable["definition"].partition(",")[0]) <= served.names


@pytest.mark.long
def test_every_metric_of_the_rules_is_served(served: Served) -> None:
    named = metrics_in(re.sub(r"^ *(summary|description|#).*$", "", RULES.read_text(), flags=re.MULTILINE))
    assert len(named) >= 7
    assert named <= served.names


@pytest.mark.long
def test_a_prometheus_scrapes_it_loads_the_rules_and_answers_every_query(served: Served) -> None:
    try:
        prometheus = Prometheus([served.address], RULES)
    except ServerMissingError as error:
        pytest.skip(str(error))
    with prometheus:
        wait_until(lambda: prometheus.query("delaystore_backlog"), "a scrape")
        wait_until(lambda: prometheus.query("count_over_time(delaystore_backlog[1m]) > 2"), "more scrapes")
        for panel in panels():
            for query in queries_of(panel):
                found = prometheus.query(query)
                assert found or panel["title"] in ONLY_WHERE_ASKED, f"{panel['title']}: nothing for {query}"
        wait_until(lambda: all(rule["health"] == "ok" for rule in rules_of(prometheus)), "the rules")
        assert len(rules_of(prometheus)) == 10
        alerts = prometheus.query("ALERTS")
        assert not alerts, alerts


def rules_of(prometheus: Prometheus) -> Sequence[Any]:
    return [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
