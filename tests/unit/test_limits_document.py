"""limits.md and configuration.md say what the code allows, and versions.md what pyproject.toml does."""

import re
import tomllib
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from delaystore import message, settings
from delaystore.bulk import options, preview
from delaystore.cli import _changing, _send
from delaystore.dispatcher import _batch, _forwarding, _in_flight, health
from delaystore.ingress.control import _protocol
from delaystore.ingress.reading import content
from delaystore.migrations.runner import _running
from delaystore.migrations.sources._file import lines
from delaystore.operations import error_queue
from delaystore.schedules import definition, making, rules, service
from delaystore.server.web.api import _fields
from delaystore.stores import abc, shared
from delaystore.stores.sql.dialects import STORE_DIALECTS
from delaystore.stores.sql.urls import LONGEST_SUFFIX, default_table_name
from delaystore.transports.rabbitmq import native, properties
from delaystore.transports.sql_queue._tables import SUFFIX

ROOT = Path(__file__).parents[2]
LIMITS = (ROOT / "docs/reference/limits.md").read_text()
CONFIGURATION = (ROOT / "docs/reference/configuration.md").read_text()
VERSIONS = (ROOT / "docs/reference/versions.md").read_text()
MIB = 2**20


def row(name: str) -> str:
    (found,) = re.findall(rf"^\| {re.escape(name)}.*$", LIMITS, re.MULTILINE)
    return str(found)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("message_id", f"{message.MAX_MESSAGE_ID_BYTES} bytes"),
        ("key ", f"{message.MAX_KEY_BYTES} bytes"),
        ("destination, a queue", f"{message.MAX_DESTINATION_BYTES} bytes"),
        ("destination, an address", f"{message.MAX_ADDRESS_BYTES:,} bytes"),
        ("due time", f"{message.LATEST_DUE_TIME:year %Y, %B %d}"),
        ("headers, nesting", f"{message.MAX_HEADER_DEPTH} levels"),
        ("headers and properties", f"{properties.MAX_ENCODED_BYTES // 1024} KiB"),
        ("property `expiration`", f"{properties.MAX_EXPIRATION_MS:,} ms"),
        ("messages remembered", f"{_in_flight.MOST_REMEMBERED:,}"),
        ("suspended destinations", f"{_forwarding.MOST_SUSPENDED:,}"),
        ("destinations with recorded", f"{_batch.MOST_DESTINATIONS:,}"),
        ("reason kept", f"{message.LONGEST_REASON} characters"),
        ("failed attempts kept", f"{message.KEPT:,} characters"),
        ("rate limit", f"{shared.SLOWEST} to {shared.FASTEST:,.0f} messages"),
        ("name of a schedule", f"{definition.MAX_NAME_BYTES} bytes"),
        ("cron expression", f"{rules._LONGEST_CRON} characters"),
        ("interval", f"1 s to {rules._LONGEST_INTERVAL.days:,} days"),
        ("occurrences made ahead", f"{making.HORIZON // timedelta(minutes=1)} minutes"),
        ("missed occurrences made", f"{making.MOST_CAUGHT_UP:,}"),
        ("missed occurrences counted", f"{making.MOST_COUNTED:,}"),
        ("occurrences of one", f"{service.MOST_BACKFILLED:,}"),
        ("messages counted exactly", f"{abc.COUNTED:,} messages"),
        ("failing and parked", f"{health.MOST_COUNTED:,}"),
        ("failed messages read", f"{error_queue.EXAMINED:,}, or {error_queue.LOOK_SECONDS:.0f} s"),
        ("bulk change", f"{_changing.ASKED:,} messages"),
        ("rows of `send --file`", f"{_send.MOST:,}"),
        ("load id", f"{options.MAX_LOAD_ID_BYTES} bytes"),
        ("spread of a load", f"{options.LONGEST_SPREAD.days:,} days"),
        ("rows a second", f"1 to {options.MOST_ROWS_PER_SECOND:,}"),
        ("destinations in the preview", f"{preview.MOST_DESTINATIONS:,}"),
        ("line of a JSON", f"{lines.MAX_LINE_BYTES // MIB} MiB"),
        ("batch size of", f"{_running._LARGEST_BATCH:,}"),
        ("[returns of a message]", f"{content.MOST} times"),
        ("control request", f"{_protocol.LARGEST // 1024} KiB"),
        ("body in the answer", f"{_protocol.LONGEST_BODY // MIB} MiB"),
        ("request body of the HTTP", f"{_fields.LARGEST // MIB} MiB"),
        ("queue per message", f"{native._LONGEST:,} ms"),
        ("delayed-message plugin", f"{native.MAXIMUM:,} ms"),
    ],
)
def test_a_limit_is_the_code_s(name: str, limit: str) -> None:
    assert limit in row(name)


def test_each_setting_with_a_bound_is_listed() -> None:
    known = {field.name for field in fields(settings.DelayedDeliverySettings)}
    listed = {name for name in known if f"| `{name}` |" in CONFIGURATION}
    assert settings.MOST.keys() <= listed


@pytest.mark.parametrize(("database", "column"), [("postgresql", 2), ("mysql", 3), ("sqlite", 4)])
def test_names_fit_each_database(database: str, column: int) -> None:
    most = STORE_DIALECTS[database].max_identifier_bytes
    for name, taken in (
        ("name of a table", 0),
        ("endpoint, with", len(default_table_name("") + LONGEST_SUFFIX)),
        ("name of a SQL queue", len(SUFFIX)),
    ):
        assert row(name).split("|")[column].strip() == f"{most - taken} bytes"


def test_versions_name_what_is_tested() -> None:
    (table,) = re.findall(r"(\| 12, bookworm.*?)\n\n", VERSIONS, re.DOTALL)
    pythons = re.findall(r"\| (3\.\d+) \|", table)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classified = [name.rpartition(" ")[2] for name in project["classifiers"] if "Python :: 3." in name]
    assert set(pythons) <= set(classified)
    assert f"{classified[0]} to {classified[-1]}" in VERSIONS
    assert project["requires-python"] == f">={classified[0]}"
