"""docs/reference/configuration.md has each key of `delaystore.toml`, and each setting, with its default."""

import json
import re
from dataclasses import fields
from datetime import timedelta

import pytest

from delaystore.server.configuration.ingress import IngressConfiguration
from delaystore.server.configuration.tables import Table, keys_of
from delaystore.server.configuration.tree import (
    ControlConfiguration,
    DispatcherConfiguration,
    EndpointConfiguration,
    HealthConfiguration,
    MetricsConfiguration,
    ServiceConfiguration,
    WebConfiguration,
)
from delaystore.server.configuration.values import Secret
from delaystore.settings import DelayedDeliverySettings
from tests.documents import ROOT

SECTIONS: dict[str, type[Table]] = {
    "## Top level": ServiceConfiguration,
    "## web": WebConfiguration,
    "## health": HealthConfiguration,
    "## metrics": MetricsConfiguration,
    "## endpoint": EndpointConfiguration,
    "### dispatcher": DispatcherConfiguration,
    "### control": ControlConfiguration,
    "### ingress": IngressConfiguration,
}


def table_below(heading: str) -> dict[str, str]:
    """The first table of a section: key and default."""
    text = (ROOT / "docs/reference/configuration.md").read_text()
    section = re.split(r"^#+ ", text.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip("| `"): row[1].strip() for row in rows}


def example_of(struct: type[Table]) -> Table:
    """A table with all defaults."""
    if struct is EndpointConfiguration:
        url = Secret("sqlite:///app.db", "sqlite:///app.db")
        return EndpointConfiguration(store=url, transport=url)
    if struct is ServiceConfiguration:
        example = example_of(EndpointConfiguration)
        assert isinstance(example, EndpointConfiguration)
        return ServiceConfiguration(endpoint={"sales": example})
    return struct()


@pytest.mark.parametrize("heading", SECTIONS)
def test_each_key_has_its_default(heading: str) -> None:
    written, known = table_below(heading), keys_of(SECTIONS[heading])
    example = example_of(SECTIONS[heading])
    assert set(written) == set(known)
    for name, key in known.items():
        value = getattr(example, name)
        if value is not None and not key.required:
            assert written[name] == f"`{json.dumps(key.shown(value))}`", name


def test_each_setting_is_there() -> None:
    written = table_below("## Settings of a Python program")
    assert set(written) == {each.name for each in fields(DelayedDeliverySettings)}
    for name, shown in written.items():
        default = getattr(DelayedDeliverySettings(), name)
        if isinstance(default, timedelta) and default:
            number, unit = shown.split()
            units = {"s": "seconds", "min": "minutes", "days": "days"}
            assert timedelta(**{units[unit]: float(number)}) == default, name
