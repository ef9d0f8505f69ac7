"""docs/reference/metrics.md: its programs run, its table has every metric, and its alerts are those of the rules."""

import re
import socket
from pathlib import Path
from typing import Any

from opentelemetry.exporter.prometheus._mapping import map_unit, sanitize_full_name

from delaystore.dispatcher import DispatchReport
from delaystore.server.telemetry import _names as names
from tests.integration.test_documents import ROOT, blocks, text_of

DOCUMENT = "docs/reference/metrics.md"
RULES = ROOT / "deploy" / "prometheus" / "delaystore.rules.yml"


def rows(first_cell: str) -> list[list[str]]:
    """The cells of the table's rows that begin so."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text_of(DOCUMENT).splitlines()
        if re.match(rf"\| {first_cell}", line)
    ]


def in_prometheus(metric: names.Metric) -> str:
    """The name as the exporter makes it."""
    parts = [sanitize_full_name(metric.name), map_unit(metric.unit), "total" if metric.kind.endswith("counter") else ""]
    return "_".join(part for part in parts if part)


def test_the_table_has_every_metric_as_it_is() -> None:
    written = {row[0]: row[1:] for row in rows("`(?:delaystore|messaging)\\.") if len(row) == 4}
    assert {name: row[:2] for name, row in written.items()} == {
        f"`{metric.name}`": [f"`{in_prometheus(metric)}`", metric.kind] for metric in names.METRICS
    }


def test_each_metric_is_described_as_in_the_code() -> None:
    text = " ".join(text_of(DOCUMENT).split())
    in_table = {(row[0], row[-1]) for row in rows("`(?:delaystore|messaging)\\.") if len(row) == 4}
    assert [
        metric.name
        for metric in names.METRICS
        if (f"`{metric.name}`", metric.description) not in in_table
        and f"- `{metric.name}`: {metric.description}" not in text
    ] == []


def test_the_attributes_are_those_of_the_code() -> None:
    written = set(re.findall(r"`((?:delaystore|messaging|error)\.[a-z_.]+)`", text_of(DOCUMENT)))
    known = {value for value in vars(names).values() if isinstance(value, str)}
    modules = {"delaystore.server.telemetry"}
    assert written - {metric.name for metric in names.METRICS} - modules <= known


def test_it_has_every_outcome() -> None:
    section = text_of(DOCUMENT).partition("### Outcomes of messages\n")[2].partition("\n#")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == DispatchReport().counts().keys() - {"fetched"}


def test_the_alerts_are_those_of_the_rules() -> None:
    assert [row[0] for row in rows("Delaystore")] == re.findall(r"alert: (\w+)", RULES.read_text())


def test_its_programs_run() -> None:
    with_prometheus, with_opentelemetry, _ = blocks(DOCUMENT, "python")  # the last has a test in test_documents.py
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found: dict[str, Any] = {}
    exec(with_prometheus.replace("9464", str(port)), found)
    assert found["store"].count() in (0, 1)
    exec(with_opentelemetry, found)
    assert found["store"].count() == 1


def test_the_files_that_it_names_are_there() -> None:
    for folder in re.findall(r"`(deploy/\w+/)`", text_of(DOCUMENT)):
        assert list(Path(ROOT / folder).iterdir())
