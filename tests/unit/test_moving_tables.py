import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import data, spec

from delaystore.transports.rabbitmq.raw import (
    MalformedPropertiesError,
    MalformedTableError,
    RawProperties,
    TableEntry,
    integer_of,
    integer_value,
    join_table,
    split_table,
    text_of,
    text_value,
)

VALUES = st.recursive(
    st.text(max_size=20) | st.binary(max_size=20) | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
)
TABLES = st.dictionaries(st.text(max_size=20), VALUES, max_size=5)
SHORT = st.none() | st.text(max_size=30)
PROPERTIES = st.builds(
    spec.BasicProperties,
    content_type=SHORT,
    content_encoding=SHORT,
    headers=st.none() | TABLES,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=SHORT,
    reply_to=SHORT,
    expiration=SHORT,
    message_id=SHORT,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=SHORT,
    user_id=SHORT,
    app_id=SHORT,
    cluster_id=SHORT,
)


def encoded_table(table: dict[str, object]) -> bytes:
    pieces: list[bytes] = []
    data.encode_table(pieces, table)
    return b"".join(pieces)


@given(TABLES)
def test_a_table_taken_apart_and_put_together_is_the_same(table: dict[str, object]) -> None:
    encoded = encoded_table(table)
    entries = split_table(encoded[4:])
    assert join_table(entries) == encoded
    assert [entry.name.decode() for entry in entries] == list(table)


@given(TABLES, st.data())
def test_a_table_cut_short_is_refused(table: dict[str, object], draws: st.DataObject) -> None:
    encoded = encoded_table(table)[4:]
    cut = encoded[: draws.draw(st.integers(0, len(encoded)))]
    try:
        entries = split_table(cut)
    except MalformedTableError:
        return
    assert join_table(entries)[4:] == cut


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(MalformedTableError, match="unknown type"):
        split_table(b"\x01a?")


def test_values_are_read_whatever_their_width() -> None:
    for number in (0, -5, 100):
        for kind, code in zip("bsIlL", "bhiqq", strict=True):
            assert integer_of(struct.pack(f">c{code}", kind.encode(), number)) == number
    assert integer_of(integer_value(2**40)) == 2**40
    assert integer_of(text_value("5")) is None
    assert integer_of(None) is None
    assert text_of(text_value("Grüße")) == "Grüße"
    assert text_of(integer_value(5)) is None
    assert text_of(b"S\x00\x00\x00\x01\xff") is None


@given(PROPERTIES)
def test_properties_are_found_in_their_bytes(properties: spec.BasicProperties) -> None:
    raw = RawProperties(b"".join(properties.encode()))
    for name in ("message_id", "expiration", "user_id", "cluster_id", "content_type"):
        assert raw.text(name) == getattr(properties, name)
    assert [entry.name.decode() for entry in raw.headers] == list(properties.headers or {})


@given(PROPERTIES, st.binary(max_size=20))
def test_a_changed_header_changes_nothing_else(properties: spec.BasicProperties, text: bytes) -> None:
    raw = RawProperties(b"".join(properties.encode()))
    value = b"x" + struct.pack(">I", len(text)) + text
    changed = spec.BasicProperties().decode(raw.changed([TableEntry(b"new", value)], without=["expiration"]).encoded)
    properties.headers, properties.expiration = {"new": text}, None
    assert changed == properties


@given(PROPERTIES)
def test_properties_without_headers_have_no_empty_table(properties: spec.BasicProperties) -> None:
    changed = RawProperties(b"".join(properties.encode())).changed([])
    properties.headers = None
    assert changed.encoded == b"".join(properties.encode())


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\x80\x00", b"\x00\x01", b"\x80\x00\x05ab", b"\x20\x00\x00\x00"])
def test_bytes_that_are_no_properties_are_refused_and_have_no_id(encoded: bytes) -> None:
    with pytest.raises(MalformedPropertiesError):
        _ = RawProperties(encoded).headers
    assert RawProperties(encoded).message_id is None
