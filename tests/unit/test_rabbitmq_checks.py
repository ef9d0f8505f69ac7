from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pika import frame, spec

from delaystore.errors import InvalidMessageError, UnsupportedMessageError
from delaystore.message import FAR_TIMESTAMPS, DelayedMessage
from delaystore.text import Address
from delaystore.transports.rabbitmq.properties import (
    MAX_ENCODED_BYTES,
    check_message,
    encoded_properties,
    read_headers,
    read_properties,
)
from delaystore.transports.rabbitmq.publication import Publication
from delaystore.transports.rabbitmq.raw import RawProperties, TableEntry

ADDRESS = Address("", "billing")


def message(destination: str = "q", message_id: str = "a", **fields: Any) -> DelayedMessage:
    fields.setdefault("body", b"body")
    return DelayedMessage(
        message_id=message_id, destination=destination, due_time=datetime(2027, 1, 1, tzinfo=UTC), **fields
    )


plain_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
    | st.integers(-(2**33), 2**34).map(lambda seconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds))
)
names = st.text(max_size=300)
values = st.recursive(
    plain_values, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=8
)
texts = st.text(max_size=260)
properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": texts,
        "content_encoding": texts,
        "correlation_id": texts,
        "reply_to": texts,
        "type": texts,
        "app_id": texts,
        "priority": st.integers(0, 255),
        "expiration": st.integers(-1, 2**33).map(str) | texts,
        "timestamp": st.datetimes(timezones=st.just(UTC)).map(lambda instant: instant.replace(microsecond=0)),
        "delivery_mode": st.integers(1, 2),
    },
)


@given(headers=st.dictionaries(names, values, max_size=5), properties=properties)
def test_what_is_accepted_comes_back_as_it_was(headers: dict[str, Any], properties: dict[str, Any]) -> None:
    sent = message(headers=headers, properties=properties)
    try:
        check_message(sent)
    except UnsupportedMessageError:
        assume(False)
    _, header = frame.decode_frame(Publication(sent, ADDRESS).content_header(1))
    received = header.properties
    assert read_headers(received) == headers
    assert read_properties(received) == {"delivery_mode": 2, **properties}
    assert received.message_id == "a"


@given(st.text(min_size=1).filter(lambda text: "\0" not in text and len(text.encode()) <= 255), st.binary())
def test_a_message_of_id_and_body_alone_is_written_as_pika_would(message_id: str, body: bytes) -> None:
    plain = message(message_id=message_id, body=body)
    with_property = message(message_id=message_id, body=body, properties={"delivery_mode": 2})
    assert Publication(plain, ADDRESS).content_header(7) == Publication(with_property, ADDRESS).content_header(7)


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        float("nan"),
        2**63,
        -(2**63) - 1,
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("1E+10"),
        Decimal("3.00000000001"),
        datetime(2027, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
    ],
)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value], lambda value: {"deep": [{"er": value}]}])
def test_values_that_would_change_are_refused_by_name(value: Any, wrap: Any) -> None:
    with pytest.raises(UnsupportedMessageError, match="culprit"):
        check_message(message(headers={"innocent": 1, "culprit": wrap(value)}))


@pytest.mark.parametrize(
    "value",
    [
        2**63 - 1,
        -(2**63),
        Decimal("-1.50"),
        datetime(2027, 1, 1, tzinfo=timezone(timedelta(hours=2))),
        MappingProxyType({"a": MappingProxyType({})}),
        [],
        b"\xff",
    ],
)
def test_values_that_arrive_equal_are_accepted(value: Any) -> None:
    check_message(message(headers={"header": value}))


@pytest.mark.parametrize(
    "bad",
    [
        {"expiration": "abc"},
        {"expiration": ""},
        {"expiration": "-1"},
        {"expiration": "1.5"},
        {"expiration": "\u0663"},
        {"expiration": str(2**32)},
        {"content_type": "x" * 256},
        {"timestamp": datetime(2027, 1, 1, 0, 0, 0, 5, tzinfo=UTC)},
        {"timestamp": datetime(1960, 1, 1, tzinfo=UTC)},
        {"timestamp": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)},
        {"reply_to": "amq.rabbitmq.reply-to"},
    ],
)
def test_properties_that_the_broker_refuses_or_changes_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedMessageError):
        check_message(message(properties=bad))


@pytest.mark.parametrize("seconds", [FAR_TIMESTAMPS[0], 1801386000123, 2**64 - 1])
def test_a_timestamp_that_no_datetime_holds_is_carried_as_a_number(seconds: int) -> None:
    check_message(message(properties={"timestamp": seconds}))
    encoded = encoded_properties(message(properties={"timestamp": seconds}))
    assert read_properties(spec.BasicProperties().decode(encoded))["timestamp"] == seconds


@pytest.mark.parametrize("seconds", [0, 1801386000, FAR_TIMESTAMPS[0] - 1, 2**64, -1])
def test_any_other_timestamp_is_a_datetime(seconds: int) -> None:
    with pytest.raises(InvalidMessageError, match="property timestamp must be a datetime, not"):
        message(properties={"timestamp": seconds})


@pytest.mark.parametrize("headers", [{"BCC": ["a"]}, {"CC": "a"}, {"CC": [1]}, {"n" * 256: 1}])
def test_headers_that_the_broker_refuses_or_takes_away_are_refused(headers: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedMessageError):
        check_message(message(headers=headers))


def test_headers_near_the_frame_limit_are_refused() -> None:
    check_message(message(headers={"big": "x" * (MAX_ENCODED_BYTES - 100)}))
    with pytest.raises(UnsupportedMessageError, match="move large values into the body"):
        check_message(message(headers={"big": "x" * MAX_ENCODED_BYTES}))


def test_a_malformed_address_is_refused() -> None:
    with pytest.raises(UnsupportedMessageError):
        check_message(message("/nowhere"))


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"ratio": 1.5, "n" * 256: 1}, "names and properties may have at most 255 bytes"),
        ({"ratio": 1.5, "large": 2**63}, r"AMQP cannot hold header 'large' \(int\): it is beyond AMQP's range"),
        (
            {"nan": float("nan"), "one": 1},
            r"AMQP cannot hold header 'nan' \(float\): RabbitMQ accepts neither infinity nor NaN",
        ),
        ({"list": [1.5, 2**63]}, r"AMQP cannot hold header 'list' \(list\): it is beyond AMQP's range"),
    ],
)
def test_what_stands_beside_a_float_is_told_from_it(headers: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedMessageError, match=says):
        encoded_properties(message(headers=headers))


@pytest.mark.long
@given(headers=st.dictionaries(st.text(max_size=20), values, max_size=4))
def test_a_float_changes_nothing_of_what_stands_beside_it(headers: dict[str, Any]) -> None:
    assume("ratio" not in headers)
    try:
        check_message(message(headers=headers))
    except UnsupportedMessageError:
        assume(False)
    alone = RawProperties(encoded_properties(message(headers=headers))).headers
    beside = RawProperties(encoded_properties(message(headers={**headers, "ratio": 0.5}))).headers
    assert beside == [*alone, TableEntry(b"ratio", b"d\x3f\xe0\x00\x00\x00\x00\x00\x00")]
