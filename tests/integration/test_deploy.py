"""What deploy/ holds: a dashboard for Grafana, and rules that Prometheus takes, each with its test."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers import ServerMissingError
from tests.servers.programs import find_program

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "delaystore.rules.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "delaystore.json").read_text())
METRIC = re.compile(r"\b(?:delaystore|messaging)_[a-z_]+\b")
LABEL_LISTS = re.compile(r"\b(?:by|without) \([^)]*\)|\{[^}]*\}")


def promtool(*arguments: str) -> str:
    try:
        program = find_program("promtool")
    except ServerMissingError as error:
        pytest.skip(str(error))
    result = subprocess.run(
        [program, *arguments],
        cwd=DEPLOY / "prometheus",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def panels() -> Iterator[dict[str, Any]]:
    yield from (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def queries_of(panel: dict[str, Any]) -> Sequence[str]:
    """The panel's queries as Grafana would ask them, for all endpoints."""
    return [target["expr"].replace("$__rate_interval", "1m").replace("$endpoint", ".*") for target in panel["targets"]]


def metrics_in(query: str) -> set[str]:
    return set(METRIC.findall(LABEL_LISTS.sub("", query)))


def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")
    assert "10 rules found" in promtool("check", "rules", RULES.name)


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    promtool("test", "rules", "delaystore.rules.test.yml")
    tested = (DEPLOY / "prometheus" / "delaystore.rules.test.yml").read_text()
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    assert len(alerts) == 10
    for alert in alerts:
        assert len(re.findall(rf"alertname: {alert}\b", tested)) >= 2, alert


def test_the_dashboard_is_whole() -> None:
    variables = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert variables == ["datasource", "endpoint"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, f"{panel['title']} lies upon another panel"
        taken |= cells
        assert grid["x"] + grid["w"] <= 24
    for panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"]
        assert all("$endpoint" in target["expr"] for target in panel["targets"]), panel["title"]
