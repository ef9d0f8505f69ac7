"""Headers and properties from maps, structs and JSON become the text that the store's codec writes."""

import json
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from delaystore.bulk.conversion import ConvertedBatch
from delaystore.bulk.options import UnknownColumns
from delaystore.errors import InvalidMessageError
from delaystore.message import NOTHING, DelayedMessage
from delaystore.stores.sql.codec import decode_mapping, encode_mapping
from delaystore.stores.sql.rows import to_row
from delaystore.transports.rabbitmq.properties import check_message
from tests.unit.converting import DUE, Column, convert, instants, not_utf8, reasons, rows

UNFIT = "headers holds a name or value that no message can"
NO_JSON = "headers is not a JSON object, or holds a tag (a name with $) that does not fit"
STRING_MAP = MapType(StringType(), StringType())
NAMES = st.text(max_size=3) | st.sampled_from(["$bytes", "$map", '"', "a", "b", "\\", "\x7f"])


class Kind(NamedTuple):
    """A type of Spark's, and values of it."""

    type: DataType
    values: st.SearchStrategy[Any]


SCALARS = [
    Kind(BooleanType(), st.booleans()),
    Kind(ShortType(), st.integers(-(2**15), 2**15 - 1)),
    Kind(LongType(), st.integers(-(2**63), 2**63 - 1)),
    Kind(DoubleType(), st.floats()),
    Kind(FloatType(), st.floats(width=32)),
    Kind(StringType(), st.text(max_size=5) | NAMES),
    Kind(BinaryType(), st.binary(max_size=5)),
    Kind(DecimalType(38, 10), st.decimals(1 - 10**28, 10**28 - 1, places=10)),
    Kind(TimestampType(), st.datetimes(timezones=st.just(UTC))),
]


def with_nulls(kind: Kind) -> st.SearchStrategy[Any]:
    return st.none() | kind.values


def list_of(kind: Kind) -> Kind:
    return Kind(ArrayType(kind.type), st.lists(with_nulls(kind), max_size=3))


def map_of(kind: Kind) -> Kind:
    return Kind(MapType(StringType(), kind.type), st.dictionaries(NAMES, with_nulls(kind), max_size=3))


def struct_of(kinds: list[Kind], names: list[str]) -> Kind:
    fields = dict(zip(names, kinds, strict=False))
    struct = StructType([StructField(name, kind.type) for name, kind in fields.items()])
    return Kind(struct, st.fixed_dictionaries({name: with_nulls(kind) for name, kind in fields.items()}))


# Arrow ends the name of a field at its first NUL: "" and "\x00" would be one name.
UNIQUE_NAMES = st.lists(NAMES.filter(lambda name: "\0" not in name), min_size=3, max_size=3, unique=True)
KINDS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        inner.map(list_of)
        | inner.map(map_of)
        | st.builds(struct_of, st.lists(inner, min_size=1, max_size=3), UNIQUE_NAMES)
    ),
    max_leaves=5,
)
STRUCTS = st.builds(struct_of, st.lists(KINDS, min_size=1, max_size=3), UNIQUE_NAMES)


def in_arrow(value: Any, kind: DataType) -> Any:
    """As pyarrow takes it: maps as pairs."""
    if value is None:
        return None
    if isinstance(kind, MapType):
        return [(name, in_arrow(item, kind.valueType)) for name, item in value.items()]
    if isinstance(kind, ArrayType):
        return [in_arrow(item, kind.elementType) for item in value]
    if isinstance(kind, StructType):
        return {field.name: in_arrow(value[field.name], field.dataType) for field in kind.fields}
    return value


def in_python(value: Any, kind: DataType) -> Any:
    """As a message's headers have it: structs without what is null, and text for what transports would change."""
    if value is None:
        return None
    if isinstance(kind, DoubleType | FloatType):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value)) or shortest(value, kind)
    if isinstance(kind, DecimalType):
        return f"{value:f}"
    if isinstance(kind, TimestampType):
        return value.isoformat()
    if isinstance(kind, MapType):
        return {name: in_python(item, kind.valueType) for name, item in value.items()}
    if isinstance(kind, ArrayType):
        return [in_python(item, kind.elementType) for item in value]
    if isinstance(kind, StructType):
        fields = {field.name: in_python(value[field.name], field.dataType) for field in kind.fields}
        return {name: item for name, item in fields.items() if item is not None}
    return value


def shortest(value: float, kind: DataType) -> str:
    """The shortest text that means this number, among those of 32 or 64 bits."""
    if isinstance(kind, DoubleType):
        return repr(value)
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return repr(next(float(text) for text in texts if struct.pack("f", float(text)) == struct.pack("f", value)))


def stored(name: str, mapping: Any) -> Any:
    """What the store writes for a message with these headers or properties; None for none."""
    given: dict[str, Any] = {name: NOTHING if mapping is None else mapping}
    message = DelayedMessage(message_id="m", destination="q", due_time=DUE, body=b"", **given)
    return to_row(message)[name]


def given_headers(kind: DataType, values: Any, **more: Column) -> ConvertedBatch:
    return convert(rows(len(values), headers=(kind, values), **more), unknown_columns=UnknownColumns.HEADERS)


def texts(converted: ConvertedBatch, name: str = "headers") -> Any:
    return converted.staged.column(name).to_pylist()


@given(KINDS.map(map_of) | STRUCTS, st.data())
def test_headers_of_any_type_are_written_as_the_store_would(kind: Kind, data: st.DataObject) -> None:
    values = data.draw(st.lists(with_nulls(kind), max_size=4))
    converted = given_headers(kind.type, [in_arrow(value, kind.type) for value in values])
    assert texts(converted) == [stored("headers", in_python(value, kind.type)) for value in values]


@settings(max_examples=50)
@given(STRUCTS, st.data())
def test_unknown_columns_become_headers(kind: Kind, data: st.DataObject) -> None:
    values = data.draw(st.lists(kind.values, min_size=1, max_size=4))
    assert isinstance(kind.type, StructType)
    names = [f"x{number}" for number in range(len(kind.type.fields))]
    columns: dict[str, Column] = {
        name: (field.dataType, [in_arrow(value[field.name], field.dataType) for value in values])
        for name, field in zip(names, kind.type.fields, strict=True)
    }
    written = [{"first": number} for number in range(len(values))]
    converted = given_headers(MapType(StringType(), LongType()), [list(value.items()) for value in written], **columns)
    expected = [
        first | dict(zip(names, [in_python(value[f.name], f.dataType) for f in kind.type.fields], strict=True))
        for first, value in zip(written, values, strict=True)
    ]
    assert texts(converted) == [
        stored("headers", {name: item for name, item in value.items() if item is not None}) for value in expected
    ]


HEADERS = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, min_size=2, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


@given(st.lists(st.none() | HEADERS, max_size=4))
def test_json_headers_are_written_as_the_store_would(values: list[Any]) -> None:
    converted = given_headers(
        StringType(), [None if value is None else json.dumps(value, indent=1) for value in values]
    )
    assert texts(converted) == [stored("headers", value) for value in values]


@given(
    st.dictionaries(
        NAMES, st.binary() | st.decimals(allow_nan=False) | st.floats() | st.datetimes(timezones=st.just(UTC))
    )
)
@example({"a": {"$b": 1}})
def test_what_a_store_wrote_comes_back_as_it_was(headers: dict[str, Any]) -> None:
    written = encode_mapping(headers)
    assert texts(given_headers(StringType(), [written])) == [written]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", NO_JSON),
        ("", NO_JSON),
        ("[1]", NO_JSON),
        ("null", NO_JSON),
        ('{"a":{"$unknown":1}}', NO_JSON),
        ('{"a":{"$bytes":"*"}}', NO_JSON),
        ('{"a":' + "9" * 5000 + "}", NO_JSON),
        ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "headers is nested too deep"),
        ('{"a":' + "[" * 90 + "]" * 90 + "}", UNFIT),
        ('{"a":"\\ud800"}', NO_JSON),
        ('{"\\ud800":1}', NO_JSON),
        ('{"a":NaN}', NO_JSON),
        ('{"a":[1e999]}', NO_JSON),
        ('{"a":{"$datetime":"20261130080000Z"}}', NO_JSON),
        ('{"a":1,"a":2}', "headers has a name twice in one object"),
        ('{"a":{"b":1,"b":1}}', "headers has a name twice in one object"),
        ('{"a":{"$datetime":"2026-11-30T08:00:00"}}', UNFIT),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_json_that_is_no_headers_is_rejected(text: str, reason: str) -> None:
    converted = given_headers(StringType(), ['{"a":1}', text, None, "{}"])
    assert reasons(converted) == [reason]
    assert texts(converted) == ['{"a":1}', None, None]


def test_text_that_is_no_utf8_is_rejected() -> None:
    assert reasons(given_headers(StringType(), not_utf8(b"{}", b"\xff"))) == ["headers is not UTF-8"]
    broken = not_utf8(b"fine", b"\xff", b"fine")
    assert reasons(convert(rows(3, a=(StringType(), broken)), unknown_columns=UnknownColumns.HEADERS)) == [UNFIT]


def test_a_time_out_of_range_is_rejected_wherever_it_is() -> None:
    far = instants([0, 2**62, None])
    converted = convert(rows(3, seen=(TimestampType(), far)), unknown_columns=UnknownColumns.HEADERS)
    assert reasons(converted) == [UNFIT]
    assert texts(converted) == ['{"seen":"1970-01-01T00:00:00+00:00"}', None]
    far_in_map = pa.MapArray.from_arrays(pa.array([0, 2, 2], pa.int32()), pa.array(["a", "b"]), far[:2])
    assert reasons(given_headers(MapType(StringType(), TimestampType()), far_in_map)) == [UNFIT]


@pytest.mark.parametrize(
    "headers", [(STRING_MAP, [[("b", "1")], [("a", "2")], None]), (StringType(), ['{"b":1}', '{"a":2}', None])], ids=str
)
def test_a_header_that_is_a_column_too_is_rejected(headers: Column) -> None:
    converted = given_headers(*headers, a=(LongType(), [1, 2, 3]))
    assert reasons(converted) == ["headers and a column hold the same name"]
    assert converted.staged.num_rows == 2


def test_no_headers_are_none() -> None:
    assert texts(given_headers(STRING_MAP, [None, []])) == [None, None]
    assert texts(given_headers(NullType(), [None])) == [None]
    assert texts(given_headers(StructType([]), [{}, None])) == [None, None]
    assert texts(convert(rows())) == [None]


PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.text(max_size=5),
        "priority": st.integers(-1, 256),
        "delivery_mode": st.integers(0, 3),
        "timestamp": st.datetimes(timezones=st.just(UTC)),
        "correlation_id": st.text(max_size=5),
    },
)
STRUCT = StructType(
    [
        StructField("content_type", StringType()),
        StructField("priority", LongType()),
        StructField("delivery_mode", ShortType()),
        StructField("timestamp", TimestampType()),
        StructField("correlation_id", StringType()),
    ]
)


def given_properties(kind: DataType, values: Any) -> ConvertedBatch:
    return convert(rows(len(values), properties=(kind, values)))


@settings(max_examples=50)
@given(st.lists(st.none() | PROPERTIES, max_size=4))
def test_properties_are_written_as_the_store_would(values: list[Any]) -> None:
    ordered = [value and {name: value[name] for name in STRUCT.names if name in value} for value in values]
    as_text = [
        value
        and [(name, item.isoformat() if isinstance(item, datetime) else str(item)) for name, item in value.items()]
        for value in ordered
    ]
    as_json = [None if value is None else json.dumps(dict(value)) for value in as_text]
    expected = []
    for value in ordered:
        try:
            expected.append(stored("properties", value))
        except InvalidMessageError:
            continue
    for kind, given_values in ((STRUCT, ordered), (STRING_MAP, as_text), (StringType(), as_json)):
        assert texts(given_properties(kind, given_values), "properties") == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"colour":"red"}', "properties holds a name that is no property"),
        ('{"priority":256}', "property priority is out of range or not a whole number"),
        ('{"priority":"1_0"}', "property priority is out of range or not a whole number"),
        ('{"priority":true}', "property priority is out of range or not a whole number"),
        ('{"timestamp":"2026-11-30T08:00:00"}', "property timestamp is out of range or not a time with its offset"),
        ('{"expiration":60000}', "property expiration is out of range or not text"),
        ("[]", "properties is not a JSON object, or holds a tag (a name with $) that does not fit"),
    ],
)
def test_what_is_no_properties_is_rejected(text: str, reason: str) -> None:
    assert reasons(given_properties(StringType(), ["{}", text, '{"priority":null}'])) == [reason]


@pytest.mark.parametrize("text", ['"', "\\", "\x7f", "\x1f", "é", "\N{GRINNING FACE}", "/ ~"], ids=ascii)
def test_what_json_escapes_is_escaped(text: str) -> None:
    assert texts(given_headers(STRING_MAP, [[(text, "plain")]])) == [encode_mapping({text: "plain"})]
    assert texts(given_headers(STRING_MAP, [[("plain", text)]])) == [encode_mapping({"plain": text})]


def test_a_decimal_stays_exact() -> None:
    converted = given_headers(MapType(StringType(), DecimalType(5, 2)), [[("a", Decimal("1.50"))]])
    assert texts(converted) == ['{"a":"1.50"}']


def test_headers_of_any_column_are_carried_by_rabbitmq() -> None:
    """AMQP has no such times and decimals, and pika no floats."""
    columns: dict[str, Column] = {
        "double": (DoubleType(), [0.1]),
        "float": (FloatType(), [0.1]),
        "floats": (ArrayType(FloatType()), [[0.1, None]]),
        "price": (DecimalType(38, 18), [Decimal("12345678901234567890.000000000000000001")]),
        "seen": (TimestampType(), [DUE]),
    }
    (text,) = texts(convert(rows(**columns), unknown_columns=UnknownColumns.HEADERS))
    headers = {
        "double": "0.1",
        "float": "0.1",
        "floats": ["0.1", None],
        "price": "12345678901234567890.000000000000000001",
        "seen": "2026-11-30T08:00:00.000001+00:00",
    }
    assert decode_mapping(text) == headers
    check_message(DelayedMessage(message_id="m", destination="q", due_time=DUE, body=b"", headers=headers))


def test_dates_times_and_intervals_become_text_in_header_columns() -> None:
    columns = rows(
        day=(DateType(), [date(2027, 3, 1)]),
        at=(TimeType(6), [time(8, 30, 0, 5)]),
        shown=(TimestampNTZType(), [datetime.fromisoformat("2027-03-01T08:00:00.5")]),
        wait=(DayTimeIntervalType(), [timedelta(days=1, microseconds=1_500_000)]),
        none=(DayTimeIntervalType(), [timedelta(0)]),
        nested=(ArrayType(DateType()), [[date(2027, 3, 1), None]]),
        missing=(DateType(), [None]),
    )
    (headers,) = convert(columns, unknown_columns=UnknownColumns.HEADERS).staged.column("headers").to_pylist()
    assert decode_mapping(headers) == {
        "day": "2027-03-01",
        "at": "08:30:00.000005",
        "shown": "2027-03-01T08:00:00.500000",
        "wait": "PT86401.5S",
        "none": "PT0S",
        "nested": ["2027-03-01", None],
    }
