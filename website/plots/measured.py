"""A file of benchmarks/measured, read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measured:
    """What a figure was measured with, and its numbers."""

    date: str
    conditions: Mapping[str, str]
    series: Sequence[Mapping[str, Any]]

    @property
    def caption(self) -> str:
        """Versions, machine and date, for the foot of a plot."""
        named = {"delaystore": "delaystore", "postgresql": "PostgreSQL", "rabbitmq": "RabbitMQ"}
        versions = [f"{shown} {self.conditions[name].split()[0]}" for name, shown in named.items()]
        machine = self.conditions["machine"].split(", ")[:2]
        return ", ".join([*versions, *machine, self.date])


def read(path: Path) -> Measured:
    """Read a file."""
    document = json.loads(path.read_text())
    return Measured(document["date"], document["conditions"], document["series"])
