"""JSON from outside: what one reader would take and another not, or each otherwise, is refused by all of ours."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaystore.bulk.json_lines import read_line
from delaystore.cli._options import parse_headers
from delaystore.ingress.control._protocol import Answer, Protocol, RequestContext
from delaystore.migrations.records.nservicebus import parse_json_headers
from delaystore.migrations.sources._file.lines import read_json_lines
from delaystore.text import DEEPEST, AmbiguousJsonError, JsonError, parse_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=9,
)
REFUSED = [
    ('{"a": {"b": 1, "b": 2}}', 'has the name "b" twice'),
    ('{"a": [{"b": 1, "\\u0062": 1}]}', 'has the name "b" twice'),
    ('{"a": 1, "a": 1}', 'has the name "a" twice'),
    ('{"a": NaN}', "is no JSON: NaN is no number in JSON$"),
    ('{"a": [-Infinity]}', "is no JSON: -Infinity is no number in JSON$"),
    ('{"a": 1e999}', "has the number 1e999, which is beyond what a number can hold$"),
    ('{"a": -1E+400}', "has the number -1E+400, which is beyond"),
    ('{"a": 1e-400}', "has the number 1e-400, which would become 0$"),
    ('{"a": [-0.00e0, -0.001e-999]}', "has the number -0.001e-999, which would become 0$"),
    ('{"a": ' + "[" * DEEPEST + "]" * DEEPEST + "}", "nested too deeply"),
    ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ('{"a": ' + "[" * 100_000, "n"),
    ('{"a": "\\ud800"}', "surrogate"),
    ('{"\\udc00": 1}', "surrogate"),
    ("{'a': 1}", "is no JSON"),
    ('{"a": 1,}', "is no JSON"),
    ('{"a": 01}', "is no JSON"),
    ('{"a": 1} x', "is no JSON"),
    ("", "is no JSON"),
]


@given(JSON)
def test_what_json_can_say_is_read(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert parse_json(text) == parse_json(text.encode()) == parse_json(json.dumps(value)) == value


def test_as_many_levels_as_are_allowed_are_read() -> None:
    assert parse_json("[" * DEEPEST + "]" * DEEPEST)
    assert parse_json("[[]," * 99 + "[]" + "]" * 99)


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[text[:30] for text, _ in REFUSED])
def test_what_can_be_read_in_several_ways_or_none_is_refused(text: str, why: str) -> None:
    for each in (text, text.encode()):
        with pytest.raises(JsonError, match=why.replace("+", r"\+")) as caught:
            parse_json(each)
        assert isinstance(caught.value, AmbiguousJsonError) is ("twice" in why)


def test_a_whole_number_that_python_does_not_read_is_told_by_its_length() -> None:
    with pytest.raises(JsonError, match=r"^has a number of 5,000 digits, which is more than 4,300$"):
        parse_json('{"a": -' + "7" * 5_000 + "}")
    assert parse_json('{"a": [0.0, -0e5, 0.00E-999]}') == {"a": [0, 0, 0]}


@pytest.mark.parametrize("text", [b'{"a": "\xff"}', '{"a": 1}'.encode("utf-16"), '{"a": 1}'.encode("utf-32")])
def test_bytes_are_utf_8(text: bytes) -> None:
    with pytest.raises(JsonError):
        parse_json(text)


def _line_of_a_load(text: str, _: Path) -> None:
    line = read_line(text.encode())
    if line is None or line.why is not None:
        raise ValueError(line)


def _line_of_a_migration(text: str, folder: Path) -> None:
    (path := folder / "a.jsonl").write_text(text)
    ((_, record),) = read_json_lines(path)
    if isinstance(record, Exception):
        raise record


def _control_request(text: str, _: Path) -> None:
    found = Protocol("sales").read(text.encode(), RequestContext(by="ada", now=datetime.now(UTC)))
    if isinstance(found, Answer) and json.loads(found.body)["error"]["code"] == "malformed":
        raise ValueError(found.problem)


DOORS: dict[str, Callable[[str, Path], Any]] = {
    "control": _control_request,
    "--headers-json": lambda text, _: parse_headers(text, "--headers-json"),
    "NServiceBus headers": lambda text, _: parse_json_headers(text),
    "load": _line_of_a_load,
    "migrate": _line_of_a_migration,
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("text", "_why"), REFUSED[:-1], ids=[text[:30] for text, _ in REFUSED[:-1]])
def test_every_door_refuses_it(door: Callable[[str, Path], Any], text: str, _why: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        door(text, tmp_path)
    assert "RecursionError" not in repr(caught.value)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_every_door_reads_what_is_clear(door: Callable[[str, Path], Any], tmp_path: Path) -> None:
    door('{"a": "1", "A2": "é\\ud83d\\ude00"}', tmp_path)


def test_nothing_else_in_the_package_reads_json_from_outside() -> None:
    """Each line is a reader of text that delaystore itself wrote, or that is only shown."""
    ours = {
        "bulk/rejects.py", "bulk/spark/_driver_client.py", "message.py", "migrations/targets/_stores.py",
        "server/web/http.py", "stores/documents.py", "stores/schedules.py", "stores/sql/_parts.py",
        "stores/sql/codec.py", "stores/sql/operating/_reports.py",
        "stores/sql/operating/audit.py", "stores/sql/operating/operations.py",
        "stores/sql/operating/schedules.py", "testing/_delivery.py",
    }  # fmt: skip
    root = Path("delaystore")
    found = {
        str(each.relative_to(root)) for each in root.rglob("*.py") if re.search(r"json\.loads?\(", each.read_text())
    }
    assert found == ours
