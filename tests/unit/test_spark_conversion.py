"""Rows of plain columns become what the store itself writes, or are rejected for one reason."""

import json
import pickle
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
)

from delaystore.bulk.columns import STAGED
from delaystore.bulk.conversion import ConvertedBatch, FirstRows
from delaystore.bulk.options import UnknownColumns
from delaystore.bulk.rejects import MAX_EXAMPLES, count_rejects
from delaystore.bulk.values import EARLIEST, EPOCH, LATEST, MICROSECOND
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import LATEST_DUE_TIME, MAX_ADDRESS_BYTES, DelayedMessage
from delaystore.stores.sql.rows import to_row
from tests.unit.converting import DUE, Column, batch, convert, instants, local, not_utf8, plan, reasons, rows

ALPHABET = st.sampled_from("aé\N{GRINNING FACE}/\0 ")
TEXTS = st.text(ALPHABET, max_size=4) | st.builds(
    lambda start, length: start + "é" * (length // 2) + "x" * (length % 2),
    st.sampled_from(["", "/"]),
    st.sampled_from([253, 254, 255, 256, 1598, 1599, 1600, 1601]),
)
INSTANTS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([EARLIEST - 1, EARLIEST, 0, LATEST, LATEST + 1])


@given(st.lists(st.tuples(TEXTS, TEXTS, INSTANTS, st.binary(max_size=5)), max_size=6))
def test_a_row_is_accepted_and_written_as_the_message_would_be(values: list[tuple[str, str, int, bytes]]) -> None:
    expected = [expected_row(*value) for value in values]
    converted = convert(
        rows(
            message_id=(StringType(), [value[0] for value in values]),
            destination=(StringType(), [value[1] for value in values]),
            due_time=(TimestampType(), instants([value[2] for value in values])),
            body=(BinaryType(), [value[3] for value in values]),
        )
    )
    assert converted.staged.schema == STAGED
    assert converted.staged.to_pylist() == [row for row in expected if row is not None]
    assert len(reasons(converted)) == expected.count(None)


def expected_row(message_id: str, destination: str, instant: int, body: bytes) -> dict[str, Any] | None:
    try:
        due_time = EPOCH + instant * MICROSECOND
        row = to_row(DelayedMessage(message_id=message_id, destination=destination, due_time=due_time, body=body))
    except (InvalidMessageError, OverflowError):
        return None
    return {name: row.get(name) for name in STAGED.names}


def test_names_count_in_any_case_and_order() -> None:
    good = rows()
    converted = convert({name.title(): good[name] for name in reversed(good)})
    assert converted.staged.to_pylist() == convert(good).staged.to_pylist()


def test_a_plan_travels_and_is_small() -> None:
    planned = plan(rows())
    text = pickle.dumps(planned)
    assert len(text) < 1000
    assert pickle.loads(text).convert(batch(rows())) == planned.convert(batch(rows()))


def test_no_rows_are_no_messages() -> None:
    converted = convert(rows(0))
    assert converted.staged.num_rows == 0
    assert converted.rejected is None


LONG = "x" * 256
BAD = [
    ("message_id", StringType(), None, "message_id is null"),
    ("message_id", StringType(), "", "message_id is empty"),
    ("message_id", StringType(), LONG, "message_id has more than 255 bytes"),
    ("message_id", StringType(), "a\0b", "message_id contains a NUL character"),
    ("message_id", StringType(), not_utf8(b"ok", b"\xff", b"ok"), "message_id is not UTF-8"),
    ("destination", StringType(), None, "destination is null"),
    ("destination", StringType(), "", "destination is empty"),
    ("destination", StringType(), LONG, "destination has more than 255 bytes"),
    ("destination", StringType(), "/" + MAX_ADDRESS_BYTES * "x", "destination is an address of more than 1600 bytes"),
    ("destination", StringType(), "a\0b", "destination contains a NUL character"),
    ("destination", StringType(), "a\nb", "destination contains a control character"),
    ("destination", StringType(), "\x85", "destination contains a control character"),
    ("destination", StringType(), not_utf8(b"ok", b"\xff", b"ok"), "destination is not UTF-8"),
    ("due_time", TimestampType(), None, "due_time is null"),
    ("due_time", TimestampType(), LATEST_DUE_TIME + MICROSECOND, "due_time is out of range"),
    ("body", BinaryType(), None, "body is null"),
    ("body", StringType(), None, "body is null"),
    ("body", BinaryType(), b"123456", "body has more than 5 bytes"),
    ("body", StringType(), "ééé", "body has more than 5 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "value", "reason"), BAD, ids=str)
def test_a_bad_row_harms_itself_alone(name: str, kind: Any, value: Any, reason: str) -> None:
    good = DUE if name == "due_time" else b"hello" if isinstance(kind, BinaryType) else "hello"
    values = [good, value, good] if not hasattr(value, "cast") else value
    converted = convert(rows(3, **{name: (kind, values)}), max_body_bytes=5)
    assert reasons(converted) == [reason]
    assert converted.staged.num_rows == 2


def test_what_the_transport_cannot_carry_is_rejected_with_its_reason() -> None:
    columns = rows(
        5,
        headers=(StringType(), ['{"n":1.5}', '{"n":1}', '{"n":2.5}', None, '{"n":3.5}']),
        destination=(StringType(), ["q", "q", "q", "/nowhere", None]),
    )
    converted = convert(columns, transport="amqp://localhost")
    float_, _, address, faulty = reasons(converted)
    assert float_ == (
        "the transport cannot carry it: header 'n' (float) holds a float, which pika reads as a whole number; "
        "send it as text or as a Decimal"
    )
    assert (address or "").startswith("the transport cannot carry it: destination '/nowhere'")
    assert faulty == "destination is null"
    assert converted.staged.column("message_id").to_pylist() == ["id-1"]
    assert convert(columns).staged.num_rows == 4


def test_a_transport_that_names_values_gives_few_reasons() -> None:
    addresses = [f"/nowhere/{number}" for number in range(100)]
    found = reasons(convert(rows(100, destination=(StringType(), addresses)), transport="amqp://localhost"))
    assert len(found) == 100
    assert len(set(found)) == 21


def test_a_transport_that_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="nosuch"):
        plan(rows(), transport="nosuch://")


def test_bad_rows_are_counted_by_their_first_reason_with_examples() -> None:
    count = MAX_EXAMPLES + 2
    converted = convert(
        rows(
            count + 1,
            destination=(StringType(), [""] * count + ["q"]),
            body=(BinaryType(), [None] * (count - 1) + [b"x" * 100, None]),
        )
    )
    assert reasons(converted) == ["destination is empty"] * count + ["body is null"]
    counted = count_rejects(converted.rejected).reasons["destination is empty"]
    assert counted.count == count
    assert len(counted.examples) == MAX_EXAMPLES
    assert json.loads(counted.examples[0]) == {
        "message_id": "id-0", "destination": "", "due_time": DUE.isoformat(), "body": None,
    }  # fmt: skip


def test_an_example_is_short() -> None:
    converted = convert(rows(destination=(StringType(), [""]), body=(StringType(), ["x" * 10_000])))
    (reason,) = count_rejects(converted.rejected).reasons.values()
    assert len(reason.examples[0]) < 300


def test_rejected_rows_come_back_as_they_were() -> None:
    columns = rows(2, destination=(StringType(), ["", "q"]))
    rejected = convert(columns).rejected
    assert rejected is not None
    assert rejected.schema.names == [*columns, "_reason"]
    assert rejected.drop_columns("_reason").to_pylist() == batch(columns).slice(0, 1).to_pylist()


@pytest.mark.parametrize("unknown", UnknownColumns)
def test_columns_of_rejected_rows_are_no_columns_of_messages(unknown: UnknownColumns) -> None:
    """A corrected file of rejected rows can be loaded; a row that is rejected again has the new reason alone."""
    came: dict[str, Column] = {
        "_Reason": (StringType(), ["old", "old"]),
        "_line": (LongType(), [7, 8]),
        "_file": (StringType(), ["a.csv", "a.csv"]),
    }
    columns = came | rows(2, destination=(StringType(), ["", "q"]))
    if unknown is UnknownColumns.BODY:
        columns |= {"colour": (StringType(), ["red", "blue"])}
        del columns["body"]
    converted = convert(columns, unknown_columns=unknown)
    assert converted.staged.column("headers").to_pylist() == [None]
    assert converted.rejected is not None
    names = [name for name in columns if name != "_Reason"]
    assert converted.rejected.schema.names == [*names, "_reason"]
    assert converted.rejected.select(["_line", "_file", "_reason"]).to_pylist() == [
        {"_line": 7, "_file": "a.csv", "_reason": "destination is empty"}
    ]


def test_unknown_columns_can_be_left_out() -> None:
    columns = rows(colour=(VariantType(), [None]))
    with pytest.raises(ConfigurationError, match="unknown columns colour"):
        plan(columns)
    plan(columns, unknown_columns=UnknownColumns.IGNORE)
    kept = convert(rows(colour=(StringType(), ["red"])), unknown_columns=UnknownColumns.IGNORE).staged
    assert kept.select(["headers", "body"]).to_pylist() == [{"headers": None, "body": b"hello"}]


def test_a_row_is_rejected_whose_id_came_before() -> None:
    first = FirstRows()
    ids = (StringType(), ["a", "b", "a", None, None])
    lines = (LongType(), [2, 3, 5, 6, 7])
    columns = rows(5, message_id=ids, _line=lines)
    converted = plan(columns).convert(batch(columns), first)
    assert converted.staged.column("message_id").to_pylist() == ["a", "b"]
    twice = "message_id is twice in the load; first at line 2"
    assert reasons_of(converted) == [twice, "message_id is null", "message_id is null"]
    again = plan(columns).convert(
        batch(rows(2, message_id=(StringType(), ["c", "b"]), _line=(LongType(), [8, 9]))), first
    )
    assert again.staged.column("message_id").to_pylist() == ["c"]
    assert reasons_of(again) == ["message_id is twice in the load; first at line 3"]
    counted = count_rejects(converted.rejected) + count_rejects(again.rejected)
    assert {text: reason.count for text, reason in counted.reasons.items()} == {
        "message_id is twice in the load": 2,
        "message_id is null": 2,
    }
    without = rows(2, message_id=(StringType(), ["a", "a"]))
    assert reasons_of(plan(without).convert(batch(without), FirstRows())) == ["message_id is twice in the load"]


def reasons_of(converted: ConvertedBatch) -> list[str]:
    assert converted.rejected is not None
    found: list[str] = converted.rejected.column("_reason").to_pylist()
    return found


def test_the_option_is_the_destination_of_rows_without() -> None:
    converted = convert(rows(2, destination=(StringType(), [None, "q"])), destination="späti")
    assert converted.staged.column("destination").to_pylist() == ["späti", "q"]
    columns = rows(2)
    del columns["destination"]
    assert convert(columns, destination="späti").staged.column("destination").to_pylist() == ["späti"] * 2


def test_a_part_of_a_batch_is_converted_alone() -> None:
    headers = (MapType(StringType(), ArrayType(StringType())), [[("a", [str(n)])] for n in range(6)])
    columns = rows(6, destination=(StringType(), ["q", "", "r", "s", "", "t"]), headers=headers)
    whole, planned = convert(columns), plan(columns)
    parts = [planned.convert(batch(columns).slice(at, 2)) for at in (0, 2, 4)]
    assert [row for part in parts for row in part.staged.to_pylist()] == whole.staged.to_pylist()
    assert sum(count_rejects(part.rejected).count for part in parts) == count_rejects(whole.rejected).count == 2


def test_unknown_columns_become_a_json_body() -> None:
    del (columns := rows(2))["body"]
    nested = StructType([StructField("x", LongType()), StructField("y", StringType())])
    columns |= {
        "Text": (StringType(), ['"ä\n', None]),
        "whole": (LongType(), [2**53 + 1, None]),
        "real": (DoubleType(), [float("nan"), 0.1]),
        "yes": (BooleanType(), [True, None]),
        "exact": (DecimalType(10, 2), [Decimal("1.50"), None]),
        "day": (DateType(), [date(2026, 3, 1), None]),
        "local": (TimestampNTZType(), [local("2026-03-01T01:00"), None]),
        "instant": (TimestampType(), [datetime(2026, 3, 1, 1, tzinfo=UTC), None]),
        "clock": (TimeType(), [time(1, 2, 3), None]),
        "span": (DayTimeIntervalType(), [timedelta(seconds=1.5), None]),
        "bytes": (BinaryType(), [b"\xff", None]),
        "nested": (ArrayType(nested), [[{"x": 1, "y": None}, None], None]),
        "named": (MapType(StringType(), DoubleType()), [[("a", None), ("b", float("-inf"))], None]),
    }
    converted = convert(columns, unknown_columns=UnknownColumns.BODY)
    first, second = converted.staged.column("body").to_pylist()
    assert json.loads(first, parse_float=Decimal) == {
        "Text": '"ä\n', "whole": 2**53 + 1, "real": "NaN", "yes": True, "exact": Decimal("1.50"), "day": "2026-03-01",
        "local": "2026-03-01T01:00:00", "instant": "2026-03-01T01:00:00+00:00", "clock": "01:02:03",
        "span": Decimal("1.5"), "bytes": "/w==", "nested": [{"x": 1}, None], "named": {"a": None, "b": "-Infinity"},
    }  # fmt: skip
    assert "ä".encode() in first
    assert json.loads(second) == dict.fromkeys(list(columns)[3:]) | {"real": 0.1}


def test_a_value_without_json_rejects_the_row() -> None:
    del (columns := rows(2))["body"]
    columns["seen"] = (TimestampType(), instants([2**62, 0]))
    converted = convert(columns, unknown_columns=UnknownColumns.BODY)
    assert reasons(converted) == ["body would hold a value that no JSON can"]


def test_a_json_body_can_be_too_large() -> None:
    del (columns := rows(2))["body"]
    columns["text"] = (StringType(), ["x", "xx"])
    converted = convert(columns, unknown_columns=UnknownColumns.BODY, max_body_bytes=len('{"text":"x"}'))
    assert reasons(converted) == ["body has more than 12 bytes"]
