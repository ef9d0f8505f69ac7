"""Columns that could be no message in any row are refused before anything runs, by name."""

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from delaystore.bulk.options import UnknownColumns
from delaystore.errors import ConfigurationError
from tests.unit.converting import Column, plan, rows

HEADERS = {"unknown_columns": UnknownColumns.HEADERS}
BODY = {"unknown_columns": UnknownColumns.BODY}
TWO_FIELDS = StructType([StructField("x", StringType()), StructField("x", LongType())])


def refused(columns: dict[str, Column], load_id: str | None = None, **options: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        plan(columns, load_id, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def without(name: str) -> dict[str, Column]:
    columns = rows()
    del columns[name]
    return columns


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "message_id",
            "no column has ids: name one message_id (string), or set the options idColumns and loadId, so that",
        ),
        (
            "destination",
            "no column says where messages go: name one destination (string), or set",
        ),
        ("due_time", "no column says when messages are due: name one due_time (timestamp) or delay (seconds)"),
        ("body", "no column is a body: name one body (binary or string), or make bodies of others"),
    ],
)
def test_a_missing_column_is_named(name: str, text: str) -> None:
    assert text in refused(without(name))


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("Message_ID", LongType(), "column Message_ID is bigint: a message_id must be string; cast it"),
        ("destination", LongType(), "column destination is bigint: a destination must be string; cast it"),
        ("due_time", LongType(), "column due_time is bigint: a due_time must be timestamp, or string (ISO 8601)"),
        ("due_time", DateType(), "column due_time is date: a due_time must be timestamp"),
        ("due_time", TimestampNTZType(), "column due_time is timestamp_ntz: its times have no time zone; set the opti"),
        ("body", MapType(StringType(), StringType()), "column body is map<string,string>: a body must be binary or st"),
        ("headers", LongType(), "column headers is bigint: headers must be a map from string, a struct, or string"),
        ("headers", MapType(LongType(), StringType()), "column headers is map<bigint,string>: headers must be a map f"),
        ("headers", MapType(StringType(), TimestampNTZType()), "column headers[] is timestamp_ntz, which no message h"),
        ("headers", StructType([StructField("x", ArrayType(DateType()))]), "column headers.x[] is date, which no mess"),
        ("headers", StructType([StructField("x", MapType(LongType(), LongType()))]), "column headers.x is map<bigint,"),
        ("headers", TWO_FIELDS, "column headers has two fields x; rename or drop one"),
        ("headers", MapType(StringType(), VariantType()), "column headers[] is variant, which no message header can h"),
        ("properties", LongType(), "column properties is bigint: properties must be a map from string, a struct, or"),
        ("properties", StructType([StructField("colour", LongType())]), "column properties has a field colour, which"),
        ("properties", StructType([StructField("type", DateType())]), "column properties.type is date, which no messa"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_named(name: str, kind: DataType, text: str) -> None:
    columns = {other: column for other, column in rows().items() if other != name.lower()}
    assert text in refused(columns | {name: (kind, [])})


def test_a_delay_must_be_a_number() -> None:
    assert "column delay is date: a delay must be a number" in refused(
        without("due_time") | {"delay": (DateType(), [])}
    )


def test_one_column_says_when() -> None:
    assert "columns due_time and Delay both give the due time; drop one" in refused(rows(Delay=(LongType(), [])))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (rows(), "the zone column tz is not there; the columns are message_id (string), destination"),
        (rows(tz=(LongType(), [])), "column tz is bigint: a time zone must be string, such as Europe/Berlin; cast it"),
        (rows(tz=(StringType(), [])), "the option zoneColumn is for local times, and column due_time has none"),
        (
            without("due_time") | {"delay": (LongType(), []), "tz": (StringType(), [])},
            "the option zoneColumn is for local times, and column delay has none",
        ),
    ],
)
def test_a_zone_column_must_fit(columns: dict[str, Column], text: str) -> None:
    assert text in refused(columns, zone_column="tz")


def test_names_that_differ_by_case_alone_are_refused() -> None:
    assert "columns body and BODY differ only in case; rename or drop one" in refused(rows(BODY=(StringType(), [])))


def test_unknown_columns_are_named_with_their_types() -> None:
    text = refused(rows(send_at=(TimestampType(), []), colour=(StringType(), [])))
    assert text.startswith("unknown columns send_at (timestamp), colour (string); a message's are message_id,")
    assert "set the option unknownColumns to headers or body" in text


def test_not_all_of_many_unknown_columns_are_named() -> None:
    many: dict[str, Column] = {f"c{number}": (LongType(), []) for number in range(12)}
    assert "c9 (bigint) and 2 more;" in refused(rows() | many)


@pytest.mark.parametrize(
    ("load_id", "options", "text"),
    [
        (None, {"id_columns": ("k",)}, "set the option loadId, so that ids"),
        ("load", {}, "set the option idColumns, so that ids"),
        ("load", {"id_columns": ("k", "K")}, "the id column K is named twice; name it once"),
        ("load", {"id_columns": ("x",)}, "the id column x is not there; the columns are k (bigint), r ("),
        ("load", {"id_columns": ("r",)}, "id column r is double, which ids cannot be derived from; cast it to strin"),
    ],
)  # fmt: skip
def test_ids_need_a_load_and_a_key(load_id: str | None, options: dict[str, Any], text: str) -> None:
    columns: dict[str, Column] = {"k": (LongType(), []), "r": (DoubleType(), [])}
    assert text in refused(columns | without("message_id"), load_id, **HEADERS, **options)


def test_a_key_beside_ids_is_refused() -> None:
    assert "the option idColumns is for rows without message_id" in refused(rows(), "load", id_columns=("body",))


def test_a_key_column_is_no_unknown_column() -> None:
    plan({"k": (LongType(), [])} | without("message_id"), "load", id_columns=("k",))


def test_a_body_of_columns_needs_columns_and_no_body() -> None:
    assert "there is a column body; drop it, or say headers" in refused(rows(), **BODY)
    assert "there are no such columns; add the columns of the body" in refused(without("body"), **BODY)
    assert "column x is variant, which has no JSON" in refused(without("body") | {"x": (VariantType(), [])}, **BODY)


def test_columns_that_become_headers_must_fit() -> None:
    assert "column day is variant, which no message header can hold; cast it to string" in refused(
        rows(day=(VariantType(), [])), **HEADERS
    )
    fields = StructType([StructField("x", StringType())])
    assert "header x is a field of headers and a column; rename or drop one" in refused(
        rows(headers=(fields, []), x=(BinaryType(), [])), **HEADERS
    )
